"""Where the pixels of a slice lie in the patient, and how it has to be turned to be looked at.

Coordinates are DICOM's: millimetres to the patient's left, to the back and to the head (L, P, S). A pixel's position is
its centre (PS3.3 C.7.6.2.1.1): p(row, column) = origin + across · Δ_column · column + down · Δ_row · row.

As for volumes in NIfTI files, axial slices are shown with the front up and the patient's right at the left, from head
to feet; coronal ones with the head up, the right at the left, from front to back; sagittal ones with the head up and
the front at the left, from right to left. An oblique slice goes by its nearest plane. What has no position in the
patient (ultrasound, endoscopy, plain radiographs) is shown as it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped

from laworder.data.sources.dicom.header import Frame

Vector = tuple[float, float, float]
PARALLEL = 0.999
"""Least cosine between the normals of planes that count as parallel: 2.6°."""
# Across which axis of the patient a plane lies: its name; the axis and direction in which its columns, its rows and its
# slices are counted.
_VIEWS = {
    2: ("axial", (0, 1), (1, 1), -1),
    1: ("coronal", (0, 1), (2, -1), 1),
    0: ("sagittal", (1, 1), (2, -1), 1),
}


@dataclass(frozen=True, slots=True)
class Plane:
    """The grid of a slice's pixels in the patient."""

    origin: Vector
    across: Vector
    down: Vector
    spacing: tuple[float, float]
    """Millimetres between rows, and between columns."""

    @property
    def normal(self) -> Float64[np.ndarray, " 3"]:
        return np.cross(self.across, self.down)

    def pixels(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """Row, column and distance from the plane (in mm, along the normal) of points in the patient."""
        away = points - np.array(self.origin)
        rows, columns = away @ np.array(self.down) / self.spacing[0], away @ np.array(self.across) / self.spacing[1]
        return np.stack([rows, columns, away @ self.normal], axis=1)

    def at(self, pixels: Shaped[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n 3"]:
        """The centres of pixels, given by row and column, in the patient."""
        steps = np.stack([np.array(self.down) * self.spacing[0], np.array(self.across) * self.spacing[1]])
        return np.array(self.origin) + pixels @ steps

    def points(self, rows: int, columns: int) -> Float64[np.ndarray, "n 3"]:
        """The centres of a picture's pixels in the patient, row by row."""
        return self.at(np.indices((rows, columns)).reshape(2, -1).T)

    def parallel(self, other: Plane) -> bool:
        return abs(float(self.normal @ other.normal)) >= PARALLEL

    def distance(self, other: Plane) -> float:
        """From this plane to the other's origin."""
        return abs(float(self.pixels(np.array([other.origin]))[0, 2]))


def plane_of(frame: Frame) -> Plane | None:
    """Where a frame lies; None where the file does not say. ValueError where it says nonsense."""
    position = frame.get("PlanePositionSequence", "ImagePositionPatient")
    directions = frame.get("PlaneOrientationSequence", "ImageOrientationPatient")
    spacing = frame.get("PixelMeasuresSequence", "PixelSpacing")
    if not position or not directions or not spacing:
        return None
    origin, sides, steps = ([float(v) for v in values] for values in (position, directions, spacing))
    if not any(sides):  # what some writers put where there is no orientation
        return None
    if (len(origin), len(sides), len(steps)) != (3, 6, 2) or not np.isfinite([*origin, *sides, *steps]).all():
        raise ValueError
    across, down = np.array(sides[:3]), np.array(sides[3:])
    lengths = np.linalg.norm(across), np.linalg.norm(down)
    if min(steps) <= 0 or not np.allclose(lengths, 1, atol=1e-2) or abs(float(across @ down)) > 1e-2:
        raise ValueError
    return Plane(_vector(origin), _vector(across / lengths[0]), _vector(down / lengths[1]), (steps[0], steps[1]))


def _vector(values: Any) -> Vector:
    x, y, z = (float(v) for v in values)
    return x, y, z


@dataclass(frozen=True)
class View:
    """How a slice is turned to be looked at: rows and columns exchanged first, then flipped."""

    name: str = ""
    exchange: bool = False
    flip_rows: bool = False
    flip_columns: bool = False
    forwards: Vector = (0.0, 0.0, 0.0)
    """The direction in which slices are counted; nowhere, where they have no positions."""

    def turned(self, pixels: Shaped[np.ndarray, "h w ..."]) -> Shaped[np.ndarray, "h2 w2 ..."]:
        """A view of the pixels."""
        seen = pixels.swapaxes(0, 1) if self.exchange else pixels
        return self._flipped(seen)

    def back(self, seen: Shaped[np.ndarray, "h2 w2 ..."]) -> Shaped[np.ndarray, "h w ..."]:
        """The pixels as they are stored."""
        flipped = self._flipped(seen)
        return flipped.swapaxes(0, 1) if self.exchange else flipped

    def _flipped(self, pixels: np.ndarray) -> np.ndarray:
        return pixels[:: -1 if self.flip_rows else 1, :: -1 if self.flip_columns else 1]

    def spacing(self, plane: Plane) -> tuple[float, float]:
        """Millimetres between the rows and between the columns that are shown."""
        return plane.spacing[::-1] if self.exchange else plane.spacing  # type: ignore[return-value]

    def place(self, plane: Plane | None) -> float:
        """Where a slice stands in its series."""
        return 0.0 if plane is None else float(np.dot(self.forwards, plane.origin))


def view_of(plane: Plane | None) -> View:
    """How slices in a plane are looked at."""
    if plane is None:
        return View()
    normal, across, down = plane.normal, np.array(plane.across), np.array(plane.down)
    axis = int(np.abs(normal).argmax())
    name, (x, right), (y, bottom), forwards = _VIEWS[axis]
    exchange = bool(abs(across[x]) + abs(down[y]) < abs(across[y]) + abs(down[x]))
    if exchange:
        across, down = down, across
    ahead = normal * np.sign(normal[axis]) * forwards
    return View(name, exchange, bool(down[y] * bottom < 0), bool(across[x] * right < 0), _vector(ahead))
