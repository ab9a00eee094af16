"""Volumes in NIfTI files → axial slices in radiological position, whatever way the file stores them.

A file's affine says where its axes point. Slices come out with rows running from anterior to posterior and columns from
the patient's right to the left, as radiologists look at them, slice 0 on top (superior).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image

from laworder.data.sources.images import shown
from laworder.errors import MissingExtraError, UserError

SUFFIXES = (".nii.gz", ".nii")
WINDOWS = {
    "abdomen": (-160.0, 240.0),
    "kidney": (-79.0, 304.0),
    "liver": (-45.0, 105.0),
    "wide": (-512.0, 512.0),
    "lung": (-1350.0, 150.0),
    "bone": (-450.0, 1050.0),
}
AXIAL = ("I", "P", "L")
MAX_VOXELS = 2**31
_CHUNK = 16
_DAMAGED = (OSError, EOFError, zlib.error, ValueError, np.linalg.LinAlgError)


@dataclass(frozen=True)
class Volume:
    """An opened file: nothing of its voxels is read yet."""

    path: Path
    image: Any
    spacing: tuple[float, float, float]
    """Millimetres between slices, rows and columns, in axial position."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.image.shape)


def parse_window(text: str) -> tuple[float, float]:
    """A window by name, or two numbers "low,high" in the file's units (Hounsfield for CT)."""
    if text in WINDOWS:
        return WINDOWS[text]
    try:
        low, high = (float(part) for part in text.strip("[]() ").split(","))
    except ValueError:
        raise UserError(f"window {text!r}: give one of {', '.join(WINDOWS)}, or two numbers: -160,240") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise UserError(f"window {text!r}: the first number must lie below the second")
    return low, high


def is_volume(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def open_volume(path: Path) -> Volume:
    """The header of a NIfTI file; UserError names it when it is damaged, or no volume."""
    try:
        from nibabel import Nifti1Image
        from nibabel.filebasedimages import ImageFileError
        from nibabel.orientations import aff2axcodes
        from nibabel.spatialimages import HeaderDataError
        from nibabel.wrapstruct import WrapStructError
    except ImportError:
        raise MissingExtraError("nibabel", "medical") from None
    try:
        image: Any = Nifti1Image.from_filename(path, keep_file_open=True)
        if len(image.shape) > 3 and set(image.shape[3:]) == {1}:  # one volume, written as a series of one
            image = Nifti1Image(image.dataobj.reshape(image.shape[:3]), image.affine, image.header)
        codes, zooms = aff2axcodes(image.affine), image.header.get_zooms()
    except (ImageFileError, HeaderDataError, WrapStructError, *_DAMAGED) as error:
        raise UserError(f"{shown(path)}: not readable as NIfTI ({_words(error)}); fetch or export it again") from error
    if len(image.shape) != 3 or 0 in image.shape:
        raise UserError(f"{shown(path)}: a volume must have 3 dimensions, this has shape {tuple(image.shape)}")
    if image.get_data_dtype().kind not in "iuf":
        raise UserError(f"{shown(path)}: its voxels are no plain numbers (colours, complex); convert it to gray")
    if math.prod(image.shape) > MAX_VOXELS:
        raise UserError(f"{shown(path)}: more than the {MAX_VOXELS} voxels allowed; crop it, or fetch it again")
    if None in codes:
        raise UserError(f"{shown(path)}: its affine does not say how it lies; export it again")
    pairs = dict(zip((_AXES[str(code)] for code in codes), zooms, strict=True))
    spacing = tuple(float(pairs[axis]) for axis in ("IS", "AP", "LR"))
    return Volume(path, image, (spacing[0], spacing[1], spacing[2]))


_AXES = {"I": "IS", "S": "IS", "A": "AP", "P": "AP", "L": "LR", "R": "LR"}


def read_volume(
    volume: Volume, convert: Callable[[np.ndarray], UInt8[np.ndarray, "..."]]
) -> UInt8[np.ndarray, "slices rows columns"]:
    """All voxels through `convert`, in axial position."""
    from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform

    turn = ornt_transform(io_orientation(volume.image.affine), axcodes2ornt(AXIAL))
    return apply_orientation(stored_voxels(volume, convert), turn)


def stored_voxels(
    volume: Volume, convert: Callable[[np.ndarray], UInt8[np.ndarray, "..."]]
) -> UInt8[np.ndarray, "i j k"]:
    """All voxels through `convert`, as they are stored, a slab at a time: one byte a voxel is held."""
    out = np.empty(volume.shape, dtype=np.uint8, order="F")
    try:
        for start in range(0, volume.shape[2], _CHUNK):
            part = slice(start, start + _CHUNK)
            out[..., part] = convert(np.asanyarray(volume.image.dataobj[..., part]))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{shown(volume.path)}: its voxels cannot be read ({_words(error)}); fetch it again") from error
    return out


def windowed(low: float, high: float) -> Callable[[np.ndarray], UInt8[np.ndarray, "..."]]:
    """Values from `low` to `high` as 0 … 255, clipped; what is not a number is as low as can be."""

    def convert(values: np.ndarray) -> UInt8[np.ndarray, "..."]:
        with np.errstate(over="ignore"):
            numbers = np.clip(np.nan_to_num(values, nan=low), low, high).astype(np.float32)
        return ((numbers - low) * (255 / (high - low)) + 0.5).astype(np.uint8)

    return convert


def labels(path: Path, most: int) -> Callable[[np.ndarray], UInt8[np.ndarray, "..."]]:
    """Whole numbers from 0 to `most`, and nothing else."""

    def convert(values: np.ndarray) -> UInt8[np.ndarray, "..."]:
        with np.errstate(invalid="ignore"):
            plain = values.astype(np.uint8, copy=False)
        other = plain is not values and bool((plain != values).any())
        if other or int(plain.max()) > most:
            raise UserError(f"{shown(path)}: labels must be whole numbers from 0 to {most}; it has others")
        return plain

    return convert


def value_range(volume: Volume) -> tuple[float, float]:
    """The 0.05th and 99.95th percentile of a sample of the voxels: the window of a scan without known units."""
    step = max(1, volume.shape[2] // 16)
    try:
        sample = np.concatenate([np.ravel(volume.image.dataobj[::4, ::4, k]) for k in range(0, volume.shape[2], step)])
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{shown(volume.path)}: its voxels cannot be read ({_words(error)}); fetch it again") from error
    sample = sample[np.isfinite(sample)]
    low, high = np.percentile(sample, (0.05, 99.95)) if sample.size else (0.0, 1.0)
    return (float(low), float(high)) if high > low else (float(low), float(low) + 1.0)


def same_space(image: Volume, mask: Volume) -> None:
    """UserError where a mask does not lie on its image, voxel by voxel."""
    if image.shape != mask.shape:
        raise UserError(f"{shown(mask.path)}: shape {mask.shape}, but its image {shown(image.path)} has {image.shape}")
    if not np.allclose(image.image.affine, mask.image.affine, atol=1e-2):
        raise UserError(f"{shown(mask.path)}: lies otherwise than its image {shown(image.path)}; resample one")


def at_spacing(
    image: Shaped[np.ndarray, "h w"], mask: Shaped[np.ndarray, "h w"], spacing: tuple[float, float], wanted: float
) -> tuple[UInt8[np.ndarray, "h2 w2"], UInt8[np.ndarray, "h2 w2"]]:
    """A slice resampled to `wanted` millimetres a pixel: image antialiased bilinear, mask nearest."""
    height, width = (max(1, round(n * mm / wanted)) for n, mm in zip(image.shape, spacing, strict=True))
    picture = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    drawn = Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)
    return np.array(picture, dtype=np.uint8), np.array(drawn, dtype=np.uint8)


def _words(error: BaseException) -> str:
    return shown(" ".join(str(error).split())[:120]) or type(error).__name__
