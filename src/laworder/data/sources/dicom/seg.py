"""DICOM Segmentation objects (PS3.3 C.8.20): frames of segments → marks on slices.

A frame is drawn on the image that its derivation names; where it names none, on a slice of the series that the object
names, and where it names none either, of the same frame of reference, at the frame's position. Frames on another grid
than their slice, in the same plane, are sampled at its pixels. A fractional segment counts from half of its maximum up;
a label map holds numbers of segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from laworder.data.sources.dicom.geometry import Plane, plane_of
from laworder.data.sources.dicom.header import Frame, damage, damaged, frames_of
from laworder.data.sources.dicom.marks import Mark, Marks, Opened, Wanted
from laworder.data.sources.dicom.pixels import stored_values
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.dicom.references import Complaints, Reference, Slices, series_references
from laworder.data.sources.dicom.slices import Slice
from laworder.data.sources.images import shown
from laworder.errors import UserError

SEGMENTATION, LABEL_MAP = "1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7"
KINDS = ("BINARY", "FRACTIONAL", "LABELMAP")


@dataclass(frozen=True)
class _Drawn:
    """One frame: the class of each of its numbers, what it refers to, and where it lies."""

    table: UInt8[np.ndarray, " n"]
    reference: Reference
    plane: Plane | None


def add_segmentation(path: Path, header: Any, slices: Slices, wanted: Wanted, marks: Marks) -> list[str]:
    """Put the frames of an object on their slices; a line for everything that is wrong with it."""
    kind = str(header.get("SegmentationType"))
    if kind not in KINDS:
        return [f"{shown(path)}: a segmentation of another type than {' and '.join(KINDS)} is not read; convert it"]
    try:
        with quiet():
            around, missing = _around(header, slices)
            frames = list(_frames(header, around, wanted))
            space = str(header.get("FrameOfReferenceUID") or "")
            size = int(header.Rows), int(header.Columns)
    except damage() as error:
        raise damaged(path, error, "segmentation") from error
    complaints = Complaints(path)
    for index, frame in frames:
        home = slices.home(frame.reference, frame.plane, space)
        if not isinstance(home, str):
            home = _fits(home, frame.plane, size)
        if isinstance(home, str):
            complaints.add(home, index + 1)
        else:
            marks.setdefault(home.key, []).append(Mark(path, _drawer(path, index, frame)))
    lines = complaints.lines("frames")
    if missing and not lines and not any(frame.reference.instances for _, frame in frames):
        lines = [f"{shown(path)}: {len(missing)} of the images that it refers to are not here"]
    return lines


def _around(header: Any, slices: Slices) -> tuple[tuple[Slice, ...] | None, list[str]]:
    """The slices that the object as a whole names: by series, or by source images."""
    series = series_references(
        header.get("ReferencedSeriesSequence"), "SeriesInstanceUID", "ReferencedInstanceSequence"
    )
    listed = [
        str(item.ReferencedSOPInstanceUID)
        for name in ("SourceImageSequence", "ReferencedImageSequence")
        for item in header.get(name) or ()
    ]
    return slices.around([*series, ("", listed)] if listed else series)


def _frames(header: Any, around: tuple[Slice, ...] | None, wanted: Wanted) -> Any:
    """Index and content of the frames whose segments count."""
    labels = {int(segment.SegmentNumber): str(segment.get("SegmentLabel") or "") for segment in header.SegmentSequence}
    values = {number: wanted.value(number, label) if number else 0 for number, label in labels.items()}
    table = np.zeros(max(values) + 1, dtype=np.uint8)
    table[list(values)] = list(values.values())
    for index in range(frames_of(header)):
        frame = Frame(header, index)
        if header.SegmentationType != "LABELMAP":
            number = frame.get("SegmentIdentificationSequence", "ReferencedSegmentNumber")
            only = next(iter(values)) if len(values) == 1 else -1
            table = np.array([0, values[only if number is None else int(number)]], dtype=np.uint8)
        if table.any():
            yield index, _Drawn(table, Reference(tuple(_sources(frame)), around), plane_of(frame))


def _sources(frame: Frame) -> Any:
    """The images, and their frames, that a frame is derived from."""
    for derivation in frame.items("DerivationImageSequence"):
        for source in derivation.get("SourceImageSequence") or ():
            numbers = source.get("ReferencedFrameNumber")
            several = numbers if hasattr(numbers, "__iter__") else [numbers or 0]
            yield from ((str(source.ReferencedSOPInstanceUID), int(number)) for number in several)


def _fits(one: Slice, plane: Plane | None, size: tuple[int, int]) -> Slice | str:
    """Without positions, only a frame of the slice's own size lies on it."""
    if size != (one.rows, one.columns) and (plane is None or one.plane is None):
        return "are of another size than their slices and have no position"
    return one


def _drawer(path: Path, index: int, frame: _Drawn) -> Callable[[Slice, Opened], UInt8[np.ndarray, "h w"]]:
    def draw(one: Slice, opened: Opened) -> UInt8[np.ndarray, "h w"]:
        classes = _classes(path, opened.drawn(path), index, frame.table)
        if not _same_grid(one, frame.plane, classes.shape):
            assert frame.plane is not None, "_fits saw to it"
            classes = _sampled(classes, frame.plane, one)
        return classes

    return draw


def _classes(path: Path, header: Any, index: int, table: UInt8[np.ndarray, " n"]) -> UInt8[np.ndarray, "h w"]:
    values = stored_values(path, header, index)
    if values.ndim != 2:
        raise UserError(f"{shown(path)}: a segmentation in colour; replace or remove it")
    if header.SegmentationType == "BINARY":
        values = (values > 0).astype(np.uint8)
    elif header.SegmentationType == "FRACTIONAL":
        most = max(1, int(header.get("MaximumFractionalValue") or 255))
        values = (2 * values.astype(np.int64) >= most).astype(np.uint8)
    elif int(values.max()) >= len(table):
        raise UserError(f"{shown(path)}: holds numbers of segments that it does not describe; replace or remove it")
    return table[values]


def _same_grid(one: Slice, plane: Plane | None, shape: tuple[int, ...]) -> bool:
    if shape != (one.rows, one.columns):
        return False
    if plane is None or one.plane is None:
        return True
    corners = np.array([[0, 0], [0, one.columns - 1], [one.rows - 1, 0], [one.rows - 1, one.columns - 1]])
    return bool(np.allclose(plane.pixels(one.plane.at(corners))[:, :2], corners, atol=0.25))


def _sampled(classes: UInt8[np.ndarray, "h w"], plane: Plane, one: Slice) -> UInt8[np.ndarray, "h2 w2"]:
    """A frame at the pixels of a slice in the same plane; nothing is drawn beyond the frame's edge."""
    assert one.plane is not None, "_fits saw to it"
    where = np.rint(plane.pixels(one.plane.points(one.rows, one.columns))[:, :2]).astype(np.int64)
    there = ((where >= 0) & (where < classes.shape)).all(axis=1)
    result = np.zeros(one.rows * one.columns, dtype=np.uint8)
    result[there] = classes[where[there, 0], where[there, 1]]
    return result.reshape(one.rows, one.columns)
