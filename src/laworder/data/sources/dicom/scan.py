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

    objects: segmentations and structure sets
    masks: mask files, each with the folder to which its name is relative
    others: how many files are none of these
    """

    instances: list[Instance] = field(default_factory=list[Instance])
    objects: list[Path] = field(default_factory=list[Path])
    masks: list[tuple[Path, Path]] = field(default_factory=list[tuple[Path, Path]])
    others: int = 0
    problems: list[str] = field(default_factory=list[str])


def scan(found: Found, *, workers: int | None = None, progress: bool = True) -> Contents:
    """Read all headers."""
    results: list[Instance | str | UserError] = [""] * len(found.dicoms)

    def look(index: int) -> None:
        try:
            results[index] = _kind(found.dicoms[index], found)
        except MissingExtraError:
            raise
        except UserError as error:
            results[index] = error

    over_cores(look, len(found.dicoms), workers=workers, label="reading headers" if progress else None)
    return _sorted(found, results)


def _sorted(found: Found, results: Sequence[Instance | str | UserError]) -> Contents:
    contents = Contents(others=found.others, problems=list(found.problems))
    contents.masks = [(path, _base(path, found)) for path in found.masks]
    for path, result in zip(found.dicoms, results, strict=True):
        if isinstance(result, Instance):
            contents.instances.append(result)
        elif isinstance(result, UserError):
            contents.problems.append(str(result))
        elif result == "object":
            contents.objects.append(path)
        elif result == "mask":
            contents.masks.append((path, _base(path, found)))
        else:
            contents.others += 1
    return contents


def _base(path: Path, found: Found) -> Path:
    """The folder to which a file's name is relative."""
    return found.apart if found.apart is not None and found.apart in path.parents else found.root


def _kind(path: Path, found: Found) -> Instance | str:
    """An image's instance; "object", "mask" or "other"."""
    header = read_dataset(path)
    kind = str(header.get("SOPClassUID") or "")
    if kind in (SEGMENTATION, LABEL_MAP, STRUCTURES):
        header = read_header(path, image=kind != STRUCTURES)
        if kind != STRUCTURES:
            check_length(path, header)
            _refuse_undecodable(path, header)
        return "object"
    if not _is_image(path, header, kind):
        return "other"
    header = read_header(path)
    check_length(path, header)
    _refuse_undecodable(path, header)
    base = _base(path, found)
    drawn = base != found.root or says_mask(path.relative_to(base))
    return "mask" if drawn else read_instance(path, header)


def _is_image(path: Path, header: Any, kind: str) -> bool:
    """Whether it has a size, or is of a kind that must have one."""
    from pydicom.uid import UID

    try:
        with quiet():
            sized = bool(header.get("Rows")) and bool(header.get("Columns"))
            return kind not in _NO_IMAGES and (sized or not kind or "Image" in UID(kind).name)
    except damage() as error:
        raise damaged(path, error) from error


def _refuse_undecodable(path: Path, header: Any) -> None:
    with quiet():
        why = undecodable(header)
    if why is not None:
        raise UserError(f"{shown(path)}: {why}")
