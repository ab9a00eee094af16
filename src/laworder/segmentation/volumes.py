"""NIfTI volumes, slice by slice: a mask with the same affine, header geometry and array order.

A slice is shown to the model as a radiologist sees it, whatever the order and direction in which the file stores its
axes: axial with the front up, coronal and sagittal with the head up, the patient's right (sagittal: front) at the left.
Values become gray by one range for the whole volume: `intensity`, or from the 0.05th to the 99.95th percentile.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image

from laworder.data.sources.images import shown
from laworder.errors import MissingExtraError, UserError
from laworder.segmentation.pictures import Job, Options, Outcome, in_channels, shrunk, stretched, write_whole
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmentation.windows import ArrayRows, blend

if TYPE_CHECKING:
    from pathlib import Path

PLANES = ("sagittal", "coronal", "axial")
"""Across the first, second and third axis of a volume in LPS order."""
SAMPLE = 2**22
"""Voxels from which the range of a volume is taken."""
_DAMAGE = (OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, zlib.error)


@dataclass(frozen=True)
class VolumeOptions:
    """How a volume becomes slices. intensity: the values that become black and white."""

    plane: Literal["auto", "axial", "coronal", "sagittal"] = "auto"
    intensity: tuple[float, float] | None = None


def predict_nifti(job: Job, *, predictor: Predictor, options: Options, volume: VolumeOptions) -> Outcome:
    """One volume. Probability maps are float32; overlays are not made."""
    image, values = _read(job.source)
    plane = volume.plane if volume.plane != "auto" else coarsest_plane(image.affine)
    seen = as_seen(values, image.affine, plane)
    low, high = volume.intensity or own_range(values)
    mask = np.zeros(values.shape, np.uint8)
    lesion = np.zeros(values.shape, np.float32)
    mask_seen, lesion_seen = (as_seen(array, image.affine, plane) for array in (mask, lesion))
    for first in range(0, len(seen), options.batch):
        numbers = range(first, min(first + options.batch, len(seen)))
        maps = _maps([to_gray(seen[k], low, high) for k in numbers], predictor, options)
        for k, p in zip(numbers, maps, strict=True):
            mask_seen[k] = classes_of(torch.from_numpy(p)[None], options.threshold)[0].numpy()
            lesion_seen[k] = p[0] if len(p) == 1 else 1 - p[0]
    if options.probabilities:
        suffix = ".nii.gz" if job.target.name.lower().endswith(".gz") else ".nii"
        _write(image, lesion, job.beside("probability", suffix))
    _write(image, mask, job.target)
    return Outcome(job.source, job.target, len(seen), float((mask > 0).mean()), float(lesion.max()))


def _read(path: Path) -> tuple[Any, np.ndarray]:
    try:
        import nibabel
        from nibabel.filebasedimages import ImageFileError
        from nibabel.orientations import io_orientation
        from nibabel.spatialimages import HeaderDataError
    except ImportError as error:
        raise MissingExtraError("nibabel", "medical") from error
    try:
        image: Any = nibabel.load(path)
        values = np.asanyarray(image.dataobj)
    except (ImageFileError, HeaderDataError, *_DAMAGE) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{shown(path)}: not readable as NIfTI ({reason}); replace or remove it") from error
    if values.ndim < 3 or math.prod(values.shape[3:]) != 1:
        raise UserError(f"{shown(path)}: a volume of shape {values.shape}; give one with 3 axes")
    values = values.reshape(values.shape[:3])
    if values.dtype.fields is not None or values.size == 0 or np.iscomplexobj(values):
        raise UserError(f"{shown(path)}: a volume of {values.dtype} with shape {values.shape} holds no gray values")
    if not np.isfinite(image.affine).all() or np.isnan(io_orientation(image.affine)).any():
        raise UserError(f"{shown(path)}: its affine does not say how its axes lie; mend its header")
    return image, values


def coarsest_plane(affine: Float[np.ndarray, "4 4"]) -> str:
    """The plane of a volume's slices: across its coarsest spacing; axial where none is coarser."""
    spacing = np.linalg.norm(_lps_columns(affine), axis=0)
    return PLANES[2] if spacing[2] >= spacing.max() * (1 - 1e-3) else PLANES[int(spacing.argmax())]


def _lps_columns(affine: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "3 3"]:
    """The affine's columns in the order of the axes that they are nearest to."""
    from nibabel.orientations import io_orientation

    order = np.argsort(io_orientation(affine)[:, 0])
    return affine[:3, order]


def as_seen(array: np.ndarray, affine: Float[np.ndarray, "4 4"], plane: str) -> np.ndarray:
    """A view of the array as slices, rows, columns; writing into it writes into the array."""
    from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform

    turned = apply_orientation(array, ornt_transform(io_orientation(affine), axcodes2ornt(("L", "P", "S"))))
    if plane == "axial":  # rows front to back, columns right to left of the patient
        return turned.transpose(2, 1, 0)
    if plane == "coronal":  # rows head to foot
        return turned.transpose(1, 2, 0)[:, ::-1]
    return turned.transpose(0, 2, 1)[:, ::-1]


def own_range(values: np.ndarray) -> tuple[float, float]:
    """From the 0.05th to the 99.95th percentile; bytes stay as they are."""
    flat = values.ravel(order="K")
    some = flat[:: max(1, flat.size // SAMPLE)].astype(np.float64)
    some = some[np.isfinite(some)]
    if values.dtype == np.uint8 or some.size == 0:
        return 0.0, 255.0
    low, high = (float(v) for v in np.percentile(some, (0.05, 99.95)))
    return (low, high) if high > low else (low, low + 1.0)


def to_gray(values: np.ndarray, low: float, high: float) -> UInt8[np.ndarray, "h w 1"]:
    """Values between low and high as 0 to 255; what is no number is black."""
    numbers = np.nan_to_num(values.astype(np.float32), nan=low, posinf=high, neginf=low)
    return ((np.clip((numbers - low) / (high - low), 0, 1)) * 255 + 0.5).astype(np.uint8)[..., None]


def _maps(
    slices: list[UInt8[np.ndarray, "h w 1"]], predictor: Predictor, options: Options
) -> list[Float[np.ndarray, "k h w"]]:
    pictures = [in_channels(pixels, predictor.channels) for pixels in slices]
    width, height = pictures[0].size
    if options.window is None:
        maps = predictor(torch.stack([shrunk(picture, predictor.size) for picture in pictures]))
        return [stretched(p, width, height) for p in maps.numpy()]
    return [_windowed(picture, predictor, options, options.window) for picture in pictures]


def _windowed(picture: Image.Image, predictor: Predictor, options: Options, side: int) -> np.ndarray:
    pixels = np.asarray(picture)
    rows = ArrayRows(pixels[..., None] if pixels.ndim == 2 else pixels)
    return np.concatenate(list(blend(rows, predictor, side=side, overlap=options.overlap, batch=options.batch)), axis=1)


def _write(like: Any, array: np.ndarray, path: Path) -> None:
    """As NIfTI of the input's kind, with its affine and units, its codes for where they come from, and no scaling."""
    header = like.header.copy()
    header.set_data_dtype(array.dtype)
    header.set_slope_inter(1, 0)
    header["cal_min"], header["cal_max"] = 0, 0
    image = type(like)(array.reshape(like.shape), like.affine, header)
    content = io.BytesIO(image.to_bytes()).getvalue()
    write_whole(path, gzip.compress(content, 3, mtime=0) if path.name.lower().endswith(".gz") else content)
