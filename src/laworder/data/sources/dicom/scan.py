"""All files of a source → its images and what may be drawn on them; everything that is wrong with any, at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laworder.data.parallel import over_cores
from laworder.data.sources.dicom.files import Found
from laworder.data.sources.dicom.header import check_length, damage, damaged, read_dataset, read_header, undecodable
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.dicom.rtstruct import STRUCTURES
from laworder.data.sources.dicom.seg import LABEL_MAP, SEGMENTATION
from laworder.data.sources.dicom.slices import Instance, read_instance
from laworder.data.sources.images import shown
from laworder.data.sources.matching import says_mask
from laworder.errors import MissingExtraError, UserError

# They have rows and columns, but are no images: RT Dose, parametric maps, segmentations by surfaces.
_NO_IMAGES = frozenset({"1.2.840.10008.5.1.4.1.1.481.2", "1.2.840.10008.5.1.4.1.1.30", "1.2.840.10008.5.1.4.1.1.66.5"})


@dataclass
class Contents:
    """What the files of a source are.

    instances: images, those too that can be placed but not decoded
    objects: segmentations and structure sets
    masks: mask files, each with the folder to which its name is relative
    others: how many files are none of these
    unread: DICOM files of which even the header cannot be read
    """

    instances: list[Instance] = field(default_factory=list[Instance])
    objects: list[Path] = field(default_factory=list[Path])
    masks: list[tuple[Path, Path]] = field(default_factory=list[tuple[Path, Path]])
    others: int = 0
    unread: list[Path] = field(default_factory=list[Path])
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class _Seen:
    """What one file is: an image's instance, "object", "mask" or "other", None where nobody knows; and its problem."""

    kind: Instance | str | None
    problem: str | None = None


def scan(found: Found, *, workers: int | None = None, progress: bool = True) -> Contents:
    """Read all headers."""
    results: list[_Seen] = [_Seen("")] * len(found.dicoms)

    def look(index: int) -> None:
        try:
            results[index] = _kind(found.dicoms[index], found)
        except MissingExtraError:
            raise
        except UserError as error:
            results[index] = _Seen(None, str(error))

    over_cores(look, len(found.dicoms), workers=workers, label="reading headers" if progress else None)
    return _sorted(found, results)


def _sorted(found: Found, results: Sequence[_Seen]) -> Contents:
    contents = Contents(others=found.others, problems=list(found.problems))
    contents.masks = [(path, _base(path, found)) for path in found.masks]
    for path, seen in zip(found.dicoms, results, strict=True):
        contents.problems += [] if seen.problem is None else [seen.problem]
        if isinstance(seen.kind, Instance):
            contents.instances.append(seen.kind)
        elif seen.kind is None:
            contents.unread.append(path)
        elif seen.kind == "object":
            contents.objects.append(path)
        elif seen.kind == "mask":
            contents.masks.append((path, _base(path, found)))
        else:
            contents.others += 1
    return contents


def _base(path: Path, found: Found) -> Path:
    """The folder to which a file's name is relative."""
    return found.apart if found.apart is not None and found.apart in path.parents else found.root


def _kind(path: Path, found: Found) -> _Seen:
    header = read_dataset(path)
    kind = _class_of(path, header)
    if kind == STRUCTURES:
        read_header(path, image=False)
        return _Seen("object")
    if kind not in (SEGMENTATION, LABEL_MAP) and not _is_image(path, header, kind):
        return _Seen("other")
    header = read_header(path)
    check_length(path, header)
    try:
        with quiet():
            why = undecodable(header)
    except damage() as error:
        raise damaged(path, error, "image") from error
    problem = None if why is None else f"{shown(path)}: {why}"
    if kind in (SEGMENTATION, LABEL_MAP):
        return _Seen("object", problem)
    base = _base(path, found)
    drawn = base != found.root or says_mask(path.relative_to(base))
    return _Seen("mask" if drawn else read_instance(path, header), problem)


def no_image(path: Path) -> bool:
    """Whether a DICOM file says that it is something else: a directory, a plan, a segmentation. A damaged one
    does not."""
    try:
        header = read_dataset(path)
        kind = _class_of(path, header)
        return kind in (STRUCTURES, SEGMENTATION, LABEL_MAP) or not _is_image(path, header, kind)
    except MissingExtraError:
        raise
    except UserError:
        return False


def _class_of(path: Path, header: Any) -> str:
    """The UID of its kind. A DICOMDIR, under whatever name it lies here, has it in its first lines alone."""
    try:
        with quiet():
            return str(header.get("SOPClassUID") or header.file_meta.get("MediaStorageSOPClassUID") or "")
    except damage() as error:
        raise damaged(path, error) from error


def _is_image(path: Path, header: Any, kind: str) -> bool:
    """Whether it has a size, or is of a kind that must have one."""
    from pydicom.uid import UID

    try:
        with quiet():
            sized = bool(header.get("Rows")) and bool(header.get("Columns"))
            return kind not in _NO_IMAGES and (sized or not kind or "Image" in UID(kind).name)
    except damage() as error:
        raise damaged(path, error) from error
