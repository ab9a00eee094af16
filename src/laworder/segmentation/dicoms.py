"""DICOM series, slice by slice: one Segmentation object a series, in the study that the images come from.

Slices are shown to the model as they are stored (rows and columns of the file). Values become gray by `--intensity`,
else by the file's own window, else from their 0.05th to their 99.95th percentile; MONOCHROME1 is inverted, colour is
RGB. The result names the patient, as it must to be found beside the images: keep it where you keep them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from laworder.data.sources.images import deep_to_bytes, shown
from laworder.errors import MissingExtraError, UserError
from laworder.segmentation.dicom_seg import segmentation
from laworder.segmentation.pictures import Job, Options, Outcome, in_channels, shrunk, stretched, write_whole
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmentation.volumes import to_gray
from laworder.segmentation.windows import ArrayRows, blend

SUFFIXES = frozenset({".dcm", ".dicom", ".ima"})
_NEEDED = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "Rows", "Columns")
_DAMAGE = (OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RuntimeError)


@dataclass(frozen=True)
class Series(Job):
    """The files of one series; `source` is the first."""

    files: tuple[Path, ...] = ()


def is_dicom(path: Path) -> bool:
    """By its suffix, or, where it has none, by the letters DICM after the preamble."""
    if path.suffix:
        return path.suffix.lower() in SUFFIXES
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def read_header(path: Path, *, pixels: bool = False) -> Any:
    """A file's dataset; UserError names it when it is damaged."""
    try:
        import pydicom
        from pydicom.errors import InvalidDicomError
    except ImportError as error:
        raise MissingExtraError("pydicom", "medical") from error
    try:
        found = pydicom.dcmread(path, stop_before_pixels=not pixels)
        missing = [name for name in _NEEDED if not found.get(name)]
    except (InvalidDicomError, NotImplementedError, *_DAMAGE) as error:
        raise _damaged(path, error) from error
    if missing:
        raise UserError(f"{shown(path)}: not a DICOM image: it has no {', '.join(missing)}; replace or remove it")
    return found


def _damaged(path: Path, error: BaseException) -> UserError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return UserError(f"{shown(path)}: not readable as a DICOM image ({reason}); replace or remove it")


def group_series(files: Sequence[Path], root: Path, out: Path) -> list[Series]:
    """Files by series, in the order of their first files. A damaged file stands alone, and fails alone, later."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        try:
            header = read_header(path)
            key = f"{path.parent}\0{header.SeriesInstanceUID}\0{header.Rows}\0{header.Columns}"
        except MissingExtraError:
            raise
        except UserError:
            key = str(path)
        groups.setdefault(key, []).append(path)
    return [
        Series(found[0], out / found[0].relative_to(root).with_suffix(".seg.dcm"), tuple(found))
        for found in groups.values()
    ]


def predict_series(
    job: Series, *, predictor: Predictor, options: Options, intensity: tuple[float, float] | None, model: str
) -> Outcome:
    """One series. A slice that cannot be decoded is left out of the result and reported with it."""
    slices: list[tuple[Any, int]] = []
    masks: list[UInt8[np.ndarray, "h w"]] = []
    problems: list[str] = []
    highest = 0.0
    for path in job.files:
        try:
            frames = gray_frames(path, read_header(path, pixels=True), intensity)
            header = read_header(path)  # without pixels: a series of them is held
        except UserError as error:
            problems.append(str(error))
            continue
        for number, pixels in enumerate(frames, start=1):
            maps = _maps(pixels, predictor, options)
            masks.append(classes_of(torch.from_numpy(maps)[None], options.threshold)[0].numpy())
            highest = max(highest, float((maps[0] if len(maps) == 1 else 1 - maps[0]).max()))
            slices.append((header, number))
    if not slices:
        raise UserError("\n".join(problems))
    order = sorted(range(len(slices)), key=lambda k: _place(*slices[k]))
    stacked = np.stack([masks[k] for k in order])
    made = segmentation([slices[k] for k in order], stacked, classes=predictor.model.classes, model=model)
    content = io.BytesIO()
    made.save_as(content, enforce_file_format=True)
    write_whole(job.target, content.getvalue())
    error = "\n".join(problems) or None
    return Outcome(job.source, job.target, len(stacked), float((stacked > 0).mean()), highest, error)


def _place(header: Any, frame: int) -> tuple[float, int, int]:
    """Along the normal of the slices where they have positions, else by instance number."""
    number = int(header.get("InstanceNumber") or 0)
    if "ImagePositionPatient" not in header or "ImageOrientationPatient" not in header:
        return 0.0, number, frame
    across = np.array(header.ImageOrientationPatient, float)
    normal = np.cross(across[:3], across[3:])
    return float(normal @ np.array(header.ImagePositionPatient, float)), number, frame


def gray_frames(path: Path, header: Any, intensity: tuple[float, float] | None) -> list[UInt8[np.ndarray, "h w c"]]:
    """Every frame of a file as gray or RGB bytes."""
    from pydicom.pixels.processing import apply_modality_lut

    try:
        values = header.pixel_array
        colour = int(header.SamplesPerPixel) == 3
        if not colour:
            values = np.asarray(apply_modality_lut(values, header), np.float32)
        frames = values if values.ndim == (4 if colour else 3) else values[None]
        window = intensity or _window(header)
        return [frame.astype(np.uint8) if colour else _gray(frame, header, window) for frame in frames]
    except (NotImplementedError, *_DAMAGE) as error:
        raise _damaged(path, error) from error


def _window(header: Any) -> tuple[float, float] | None:
    """The file's first window, as low and high."""
    centre, width = header.get("WindowCenter"), header.get("WindowWidth")
    if centre in (None, "") or width in (None, ""):
        return None
    centre, width = (float(v[0]) if hasattr(v, "__len__") else float(v) for v in (centre, width))
    return (centre - width / 2, centre + width / 2) if width > 0 else None


def _gray(frame: np.ndarray, header: Any, window: tuple[float, float] | None) -> UInt8[np.ndarray, "h w 1"]:
    gray = deep_to_bytes(frame)[..., None] if window is None else to_gray(frame, *window)
    return 255 - gray if header.PhotometricInterpretation == "MONOCHROME1" else gray


def _maps(pixels: UInt8[np.ndarray, "h w c"], predictor: Predictor, options: Options) -> np.ndarray:
    picture = in_channels(pixels, predictor.channels)
    if options.window is None:
        maps = predictor(shrunk(picture, predictor.size)[None])[0].numpy()
        return stretched(maps, *picture.size)
    array = np.asarray(picture)
    rows = ArrayRows(array[..., None] if array.ndim == 2 else array)
    bands = blend(rows, predictor, side=options.window, overlap=options.overlap, batch=options.batch)
    return np.concatenate(list(bands), axis=1)
