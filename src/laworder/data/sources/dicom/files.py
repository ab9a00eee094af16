"""Which files a DICOM source is made of: everything below a folder, or what a DICOMDIR lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laworder.data.sources.dicom.header import damage, damaged, is_dicom, read_dataset
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.images import picture_suffixes, shown
from laworder.data.sources.matching import files_below
from laworder.data.sources.volumes import is_volume
from laworder.errors import UserError

DICOMDIR = "DICOMDIR"


@dataclass(frozen=True)
class Found:
    """The files of a source.

    dicoms: objects of all kinds
    masks: pictures and volumes
    others: how many files are neither
    root: the folder of the images
    apart: the folder of masks, if they have one
    """

    dicoms: tuple[Path, ...]
    masks: tuple[Path, ...]
    others: int
    root: Path
    apart: Path | None = None
    problems: tuple[str, ...] = ()


def is_directory_file(path: Path) -> bool:
    """Whether a file is called DICOMDIR, as the standard has it."""
    return path.is_file() and path.name.upper() == DICOMDIR


def find_files(origin: Path, masks: Path | None) -> Found:
    """What lies in `origin`, a folder or a DICOMDIR, and in the folder `masks`, where nothing but masks lies."""
    if masks is not None and not masks.is_dir():
        raise UserError(f"{shown(masks)}: {'not a folder' if masks.exists() else 'no such folder'}")
    apart = [] if masks is None else list(files_below(masks))
    if origin.is_file():
        listed, problems = _listed(origin)
        return _sorted([*listed, *apart], origin.parent, masks, tuple(problems))
    if not origin.is_dir():
        raise UserError(f"{shown(origin)}: {'not a folder' if origin.exists() else 'no such folder'}")
    inside = None if masks is None else masks.resolve()
    files = [file for file in files_below(origin) if inside is None or inside not in file.resolve().parents]
    return _sorted([*(file for file in files if file.name.upper() != DICOMDIR), *apart], origin, masks)


def _sorted(files: Sequence[Path], root: Path, apart: Path | None, problems: tuple[str, ...] = ()) -> Found:
    dicoms = {file: None for file in files if is_dicom(file)}
    drawn = [f for f in files if f not in dicoms and (f.suffix.lower() in picture_suffixes() or is_volume(f))]
    return Found(tuple(dicoms), tuple(drawn), len(files) - len(dicoms) - len(drawn), root, apart, problems)


def _listed(index: Path) -> tuple[list[Path], list[str]]:
    """The files that a DICOMDIR names, and a line for each that is not there."""
    header = read_dataset(index)
    try:
        with quiet():
            records = list(header.DirectoryRecordSequence)
            named = [record.get("ReferencedFileID") for record in records]
    except damage() as error:
        raise damaged(index, error, "directory") from error
    found: list[Path] = []
    problems: list[str] = []
    for name in named:
        if not name:
            continue
        parts = [name] if isinstance(name, str) else [str(part) for part in name]
        path = _resolved(index.parent, parts)
        if path is None:
            problems.append(f"{shown(index)}: lists {shown('/'.join(parts))}, which is not there")
        else:
            found.append(path)
    return sorted(set(found)), problems


def _resolved(folder: Path, parts: Sequence[str]) -> Path | None:
    """The file of these names below `folder`; copies from a CD may have lost their capitals or kept a version."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\\" in part or not folder.is_dir():
            return None
        exact = folder / part
        alike = (e for e in sorted(folder.iterdir()) if e.name.split(";")[0].casefold() == part.casefold())
        place = exact if exact.exists() else next(alike, None)
        if place is None:
            return None
        folder = place
    return folder if folder.is_file() else None
