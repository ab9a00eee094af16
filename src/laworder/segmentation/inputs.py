"""What a user points at → the files to predict, and a name for each result."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from laworder.data.sources.dicom.header import is_dicom
from laworder.data.sources.dicom.scan import no_image
from laworder.data.sources.images import picture_suffixes, shown
from laworder.errors import UserError
from laworder.segmentation.dicoms import group_series
from laworder.segmentation.pictures import LOSSLESS, Job

TIFF = frozenset({".tif", ".tiff"})
NIFTI = (".nii", ".nii.gz")


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(NIFTI)


def is_tiff(path: Path) -> bool:
    return path.suffix.lower() in TIFF


def find_jobs(source: Path, out: Path) -> tuple[list[Job], int]:
    """The files of a folder and of all below it, or the one file, in a fixed order; and how many were passed over.

    Results lie in `out` as their files lie in the folder. Hidden files, and `out` itself, are left alone; so is DICOM
    that is no image.
    """
    if source.is_file():
        if is_dicom(source):
            if no_image(source):
                raise UserError(f"{shown(source)}: is DICOM, but no image; give images, or the folder that holds them")
            return list(group_series([source], source.parent, out)), 0
        return [Job(source, out / result_name(source))], 0
    if not source.is_dir():
        raise UserError(f"{shown(source)}: no such file or folder")
    files = list(_files(source, out.resolve()))
    slices = [path for path in files if is_dicom(path) and not no_image(path)]
    known = [path for path in files if is_nifti(path) or path.suffix.lower() in picture_suffixes()]
    if not known and not slices:
        raise UserError(f"{shown(source)}: holds no pictures, no DICOM and no NIfTI volumes ({len(files)} other files)")
    names = [path.relative_to(source).parent / result_name(path) for path in known]
    # `a.jpg` and `a.png` would both become `a.png`: then both keep their whole name in front.
    often = Counter(str(name).lower() for name in names)
    jobs = [
        Job(path, out / (name if often[str(name).lower()] == 1 else name.with_name(path.name + name.suffix)))
        for path, name in zip(known, names, strict=True)
    ]
    return [*jobs, *group_series(slices, source, out)], len(files) - len(known) - len(slices)


def _files(folder: Path, out: Path) -> Iterable[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and Path(here, n).resolve() != out)
        yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def result_name(path: Path) -> str:
    """The mask's file name: the input's own where its format holds a mask unharmed, else a PNG's."""
    if is_nifti(path) or path.suffix.lower() in LOSSLESS:
        return path.name
    return path.stem + ".png"
