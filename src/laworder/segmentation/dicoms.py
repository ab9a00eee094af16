"""DICOM series, slice by slice: one Segmentation object a series, in the study that the images come from.

Slices are shown to the model as `laworder data prepare dicom` shows them: turned as radiologists look at them, gray by
`--intensity`, else by the file's own window, else from the 0.05th to the 99.95th percentile of the series. The masks
are turned back. The result names the patient, as it must to be found beside the images: keep it where you keep them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from laworder.data.sources.dicom.geometry import view_of
from laworder.data.sources.dicom.header import read_header
from laworder.data.sources.dicom.pixels import Range, own_range, shown_pixels
from laworder.data.sources.dicom.slices import Instance, read_instance
from laworder.errors import MissingExtraError, UserError
from laworder.segmentation.dicom_seg import segmentation
from laworder.segmentation.pictures import Job, Options, Outcome, in_channels, shrunk, stretched, write_whole
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmentation.windows import ArrayRows, blend


@dataclass(frozen=True)
class Series(Job):
    """The files of one series; `source` is the first."""

    files: tuple[Path, ...] = ()


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
    found: list[_Predicted] = []
    problems: list[str] = []
    headers: dict[Path, Any] = {}
    instances: list[Instance] = []
    for path in job.files:
        try:
            headers[path] = read_header(path)
            instances.append(read_instance(path, headers[path]))
        except UserError as error:
            problems.append(str(error))
    frames = [(one.path, one.frame) for instance in instances for one in instance.slices]
    usual = None if intensity is not None else own_range(frames, lambda path: read_header(path, pixels=True))

    def mask(pixels: UInt8[np.ndarray, "h w c"]) -> tuple[UInt8[np.ndarray, "h w"], float]:
        maps = _maps(pixels, predictor, options)
        classes = classes_of(torch.from_numpy(maps)[None], options.threshold)[0].numpy()
        return classes, float((maps[0] if len(maps) == 1 else 1 - maps[0]).max())

    for instance in instances:
        try:
            found += list(_file(instance, headers[instance.path], intensity, usual, mask))
        except UserError as error:
            problems.append(str(error))
    if not found:
        raise UserError("\n".join(problems))
    found.sort(key=lambda one: one.place)
    stacked = np.stack([one.mask for one in found])
    slices = [(one.header, one.number) for one in found]
    made = segmentation(slices, stacked, classes=predictor.model.classes, model=model)
    content = io.BytesIO()
    made.save_as(content, enforce_file_format=True)
    write_whole(job.target, content.getvalue())
    error = "\n".join(problems) or None
    highest = max(one.highest for one in found)
    return Outcome(job.source, job.target, len(stacked), float((stacked > 0).mean()), highest, error)


@dataclass(frozen=True)
class _Predicted:
    """One slice: its file's header and its number there (from 1), where it stands in the series, and its mask."""

    header: Any
    number: int
    place: tuple[float, int, int]
    mask: UInt8[np.ndarray, "h w"]
    highest: float


def _file(
    instance: Instance,
    header: Any,
    intensity: Range | None,
    usual: Range | None,
    mask: Callable[[UInt8[np.ndarray, "h w c"]], tuple[UInt8[np.ndarray, "h w"], float]],
) -> Iterator[_Predicted]:
    """The frames of a file, seen as radiologists see them."""
    whole = read_header(instance.path, pixels=True)
    for one in instance.slices:
        view = view_of(one.plane)
        pixels = shown_pixels(instance.path, whole, one.frame, window=intensity, own_range=usual)
        classes, highest = mask(np.ascontiguousarray(view.turned(pixels)))
        # Along the normal of the slices where they have positions, else by instance number.
        height = 0.0 if one.plane is None else float(one.plane.normal @ np.array(one.plane.origin))
        yield _Predicted(header, one.frame + 1, (height, one.number, one.frame), view.back(classes), highest)


def _maps(pixels: UInt8[np.ndarray, "h w c"], predictor: Predictor, options: Options) -> np.ndarray:
    picture = in_channels(pixels, predictor.channels)
    if options.window is None:
        maps = predictor(shrunk(picture, predictor.size)[None])[0].numpy()
        return stretched(maps, *picture.size)
    array = np.asarray(picture)
    rows = ArrayRows(array[..., None] if array.ndim == 2 else array)
    bands = blend(rows, predictor, side=options.window, overlap=options.overlap, batch=options.batch)
    return np.concatenate(list(bands), axis=1)
