"""DICOM structure sets (PS3.3 C.8.8.5 and C.8.8.6): contours of regions → marks on slices.

A contour is drawn on the image that it names; where it names none, on the slice of the referenced series, or else of
the same frame of reference, in whose plane it lies. All contours of a region on one slice are filled together by the
even-odd rule (`polygons`). Points, lines and volumes without closed contours mark nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from laworder.data.sources.dicom.geometry import Plane
from laworder.data.sources.dicom.header import damage, damaged
from laworder.data.sources.dicom.marks import Mark, Marks, Opened, Wanted
from laworder.data.sources.dicom.polygons import even_odd
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.dicom.references import Complaints, Reference, Slices, series_references
from laworder.data.sources.dicom.slices import Slice

STRUCTURES = "1.2.840.10008.5.1.4.1.1.481.3"
CLOSED = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")
FLAT = 0.05
"""Millimetres that a contour's points may leave its plane: decimals that were rounded."""


@dataclass(frozen=True)
class _Contour:
    """One closed contour: its region, the class of that, what it refers to, its corners in the patient."""

    region: int
    value: int
    space: str
    reference: Reference
    corners: Float64[np.ndarray, "n 3"]


def add_structures(path: Path, header: Any, slices: Slices, wanted: Wanted, marks: Marks) -> list[str]:
    """Put the contours of a structure set on their slices; a line for everything that is wrong with it."""
    try:
        with quiet():
            contours = list(_contours(header, slices, wanted))
    except damage() as error:
        raise damaged(path, error, "structure set") from error
    complaints = Complaints(path)
    drawn: dict[tuple[tuple[str, int], int, int], list[Float64[np.ndarray, "n 2"]]] = defaultdict(list)
    for number, contour in enumerate(contours, start=1):
        plane = plane_through(contour.corners)
        if plane is None:  # no area: it marks nothing
            continue
        home = _home(contour, plane, slices)
        if isinstance(home, str):
            complaints.add(home, number)
        else:
            assert home.plane is not None, "_home saw to it"
            corners = home.plane.pixels(contour.corners)[:, :2]
            drawn[home.key, contour.region, contour.value].append(corners)
    for (key, _, value), polygons in drawn.items():
        marks.setdefault(key, []).append(Mark(path, _drawer(polygons, value)))
    return complaints.lines("contours")


def plane_through(corners: Float64[np.ndarray, "n 3"]) -> Plane | None:
    """The plane of a closed contour, by Newell's sum of cross products; None where it encloses no area."""
    if len(corners) < 3:
        return None
    middle = corners.mean(axis=0)
    away = corners - middle
    normal = np.cross(away, np.roll(away, -1, axis=0)).sum(axis=0)
    area = float(np.linalg.norm(normal)) / 2
    if area < 1e-6:
        return None
    normal = normal / (2 * area)
    across = np.cross(normal, np.eye(3)[int(np.abs(normal).argmin())])
    across = across / np.linalg.norm(across)
    down = np.cross(normal, across)
    origin, first, second = ((float(v[0]), float(v[1]), float(v[2])) for v in (middle, across, down))
    return Plane(origin, first, second, (1.0, 1.0))


def _home(contour: _Contour, plane: Plane, slices: Slices) -> Slice | str:
    """The slice of a contour, or why there is none."""
    if np.abs(plane.pixels(contour.corners)[:, 2]).max() > FLAT:
        return "do not lie in one plane"
    home = slices.home(contour.reference, plane, contour.space)
    return "lie on images without a position" if not isinstance(home, str) and home.plane is None else home


def _contours(header: Any, slices: Slices, wanted: Wanted) -> Iterator[_Contour]:
    """The closed contours of the regions that count."""
    around = _around(header, slices)
    regions = {int(item.ROINumber): item for item in header.get("StructureSetROISequence") or ()}
    for item in header.get("ROIContourSequence") or ():
        number = int(item.ReferencedROINumber)
        region = regions[number]
        closed = [c for c in item.get("ContourSequence") or () if str(c.get("ContourGeometricType")) in CLOSED]
        value = wanted.value(number, str(region.get("ROIName") or "")) if closed else 0
        space = str(region.get("ReferencedFrameOfReferenceUID") or "")
        for contour in closed if value else ():
            corners = np.array([float(v) for v in contour.ContourData], dtype=np.float64).reshape(-1, 3)
            if not np.isfinite(corners).all():
                raise ValueError
            yield _Contour(number, value, space, Reference(tuple(_images(contour)), around), corners)


def _images(contour: Any) -> Iterator[tuple[str, int]]:
    for image in contour.get("ContourImageSequence") or ():
        yield str(image.ReferencedSOPInstanceUID), int(image.get("ReferencedFrameNumber") or 0)


def _around(header: Any, slices: Slices) -> tuple[Slice, ...] | None:
    """The slices of the series that the structure set as a whole refers to."""
    series: list[tuple[str, list[str]]] = []
    for space in header.get("ReferencedFrameOfReferenceSequence") or ():
        for study in space.get("RTReferencedStudySequence") or ():
            items = study.get("RTReferencedSeriesSequence")
            series += series_references(items, "SeriesInstanceUID", "ContourImageSequence")
    return slices.around(series)[0]


def _drawer(
    polygons: Sequence[Float64[np.ndarray, "n 2"]], value: int
) -> Callable[[Slice, Opened], UInt8[np.ndarray, "h w"]]:
    def draw(one: Slice, _: Opened) -> UInt8[np.ndarray, "h w"]:
        return even_odd(polygons, one.rows, one.columns).astype(np.uint8) * np.uint8(value)

    return draw
