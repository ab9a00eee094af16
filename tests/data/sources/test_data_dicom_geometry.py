"""Where slices, frames, contours and volumes lie in the patient: against computations made in another way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from dicom_files import HU, boxes, scan_of, segmentation, series, structures
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from laworder.data.pairs import Pair
from laworder.data.sources.dicom import DicomRule, dicom
from laworder.data.sources.dicom.geometry import Plane, view_of
from laworder.data.sources.dicom.polygons import even_odd
from laworder.errors import UserError


def pairs(folder: Path, **rule: Any) -> list[Pair]:
    raw = dicom(folder, DicomRule(**rule))
    return [item.pair for unit in raw.units for item in raw.read(unit)]


def inside(polygons: list[np.ndarray], y: float, x: float) -> bool:
    """Even-odd, by a ray to the right, edge by edge (the code under test sums along rows, from the left)."""
    crossings = 0
    for polygon in polygons:
        for (y0, x0), (y1, x1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                crossings += 1
    return crossings % 2 == 1


# Off the pixels' centres: there an edge belongs to one side or the other.
CORNERS = hnp.arrays(np.float64, st.tuples(st.integers(3, 9), st.just(2)), elements=st.floats(-4, 16))
POLYGON = CORNERS.map(lambda corners: np.round(corners, 3) + np.array([0.00037, 0.000713]))


@given(st.lists(POLYGON, min_size=1, max_size=3))
def test_polygons_are_filled_as_an_independent_rasteriser_fills_them(polygons: list[np.ndarray]) -> None:
    expected = [[inside(polygons, y, x) for x in range(12)] for y in range(11)]
    np.testing.assert_array_equal(even_odd(polygons, 11, 12), expected)


def test_polygons_that_share_an_edge_share_no_pixel() -> None:
    left, right = np.array([[0, 0], [0, 4], [6, 4], [6, 0.0]]), np.array([[0, 4], [0, 9], [6, 9], [6, 4.0]])
    first, second = even_odd([left], 8, 12), even_odd([right], 8, 12)
    assert not (first & second).any()
    np.testing.assert_array_equal(first | second, even_odd([left, right], 8, 12))
    assert (first.sum(), second.sum()) == (6 * 4, 6 * 5)


# Directions of columns and rows as scanners write them, and the turn (k quarter turns, then mirrored) that each needs.
AXIAL_TURNS: dict[tuple[float, ...], Callable[[np.ndarray], np.ndarray]] = {
    (1, 0, 0, 0, 1, 0): lambda a: a,
    (-1, 0, 0, 0, -1, 0): lambda a: a[::-1, ::-1],  # lying on the belly, feet first
    (-1, 0, 0, 0, 1, 0): lambda a: a[:, ::-1],
    (1, 0, 0, 0, -1, 0): lambda a: a[::-1],
    (0, 1, 0, 1, 0, 0): lambda a: a.T,
    (0, -1, 0, 1, 0, 0): lambda a: a[:, ::-1].T,
    (0, 1, 0, -1, 0, 0): lambda a: a[::-1].T,
}


@pytest.mark.parametrize("sides", AXIAL_TURNS)
def test_every_axial_orientation_is_shown_alike(tmp_path: Path, sides: tuple[float, ...]) -> None:
    masks = boxes()
    slices = series(tmp_path / "ct", scan_of(masks), sides=sides, **HU)
    segmentation(tmp_path / "s.dcm", [(masks[k], 1, slices[k]) for k in range(4)], named=False)
    found = pairs(tmp_path, window="0,300")
    upwards = np.cross(sides[:3], sides[3:])[2] > 0
    for pair, k in zip(found, range(3, -1, -1) if upwards else range(4), strict=True):
        np.testing.assert_array_equal(pair.mask, AXIAL_TURNS[sides](masks[k]))
        hounsfield = AXIAL_TURNS[sides](scan_of(masks)[k]).astype(float) - 1000
        np.testing.assert_allclose(pair.image[..., 0], np.clip(hounsfield / 300 * 255, 0, 255), atol=0.51)


DIRECTIONS = st.tuples(*[st.floats(-1, 1) for _ in range(6)])


@given(DIRECTIONS)
def test_what_is_shown_points_the_right_way(numbers: tuple[float, ...]) -> None:
    """Whatever way a plane lies: columns run to the patient's left (sagittal: back), rows to the back or the feet."""
    first, second = np.array(numbers[:3]), np.array(numbers[3:])
    if np.linalg.norm(first) < 0.1 or np.linalg.norm(np.cross(first, second)) < 0.1:
        return
    across = first / np.linalg.norm(first)
    normal = np.cross(across, second)
    normal /= np.linalg.norm(normal)
    down = np.cross(normal, across)
    plane = Plane((0.0, 0.0, 0.0), tuple(across), tuple(down), (1.0, 2.0))
    view = view_of(plane)
    places = view.turned(plane.points(5, 4).reshape(5, 4, 3))
    np.testing.assert_array_equal(view.back(places), plane.points(5, 4).reshape(5, 4, 3))
    columns, rows = places[0, -1] - places[0, 0], places[-1, 0] - places[0, 0]
    axis = {"axial": 2, "coronal": 1, "sagittal": 0}[view.name]
    assert abs(normal[axis]) == max(np.abs(normal))
    along, below = {"axial": (0, (1, 1)), "coronal": (0, (2, -1)), "sagittal": (1, (2, -1))}[view.name]
    assert columns[along] > 0
    assert rows[below[0]] * below[1] > 0
    assert view.forwards[axis] * {"axial": -1, "coronal": 1, "sagittal": 1}[view.name] >= 0


def turned_by(degrees: float) -> tuple[float, ...]:
    """Columns and rows of slices tilted about the patient's left-right axis and turned in their plane."""
    a, b = np.deg2rad(degrees), np.deg2rad(degrees / 2)
    tilt = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    spin = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    turn = tilt @ spin
    return tuple(float(v) for v in (*turn[:, 0], *turn[:, 1]))


def test_oblique_slices_with_contours_frames_and_a_volume(tmp_path: Path) -> None:
    """A ball in the patient, drawn in three ways on slices that lie across all axes."""
    sides, origin, spacing, step = turned_by(25.0), (-14.0, -30.0, 7.0), (1.5, 1.25), 2.0
    across, down = np.array(sides[:3]), np.array(sides[3:])
    normal = np.cross(across, down)
    rows, columns, count = 30, 40, 9
    y, x = np.indices((rows, columns))
    places = np.stack(
        [origin + k * step * normal + x[..., None] * spacing[1] * across + y[..., None] * spacing[0] * down
         for k in range(count)]
    )  # fmt: skip
    centre = places[4, 14, 19] + 0.3
    ball = (np.linalg.norm(places - centre, axis=-1) < 9).astype(np.uint8)
    assert ball.any(axis=(1, 2)).sum() >= 8
    where = {"origin": origin, "sides": sides, "spacing": spacing, "step": step}
    expected = {(k, (ball[k] > 0).tobytes()) for k in range(count) if ball[k].any()}

    def shown(folder: Path) -> set[tuple[int, bytes]]:
        raw = dicom(folder)
        back = view_of(Plane(origin, tuple(across), tuple(down), spacing)).back
        found = [item for unit in raw.units for item in raw.read(unit)]
        return {(count - 1 - item.extra["slice"], (back(item.pair.mask) > 0).tobytes()) for item in found}

    scan = scan_of(ball)
    slices = series(tmp_path / "seg" / "ct", scan, **where, **HU)
    segmentation(tmp_path / "seg" / "s.dcm", [(ball[k], 1, slices[k]) for k in range(count)], named=False)
    assert shown(tmp_path / "seg") == expected

    # Contours around the pixels, row by row: the ball's chords, half a pixel wider.
    slices = series(tmp_path / "rt" / "ct", scan, **where, **HU)
    contours = []
    for k in range(count):
        for line in range(rows):
            ends = np.flatnonzero(ball[k, line])
            if len(ends):
                top, bottom, left, right = line - 0.5, line + 0.5, ends[0] - 0.5, ends[-1] + 0.5
                box = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
                points = [origin + k * step * normal + c * spacing[1] * across + r * spacing[0] * down for r, c in box]
                contours.append((np.array(points), None))
    structures(tmp_path / "rt" / "rt.dcm", {"GTV": contours}, space=str(slices[0].FrameOfReferenceUID))
    assert shown(tmp_path / "rt") == expected

    # A NIfTI volume on a finer grid of its own; sampling it may err by a voxel at the rim.
    slices = series(tmp_path / "nii" / "ct", scan, **where, **HU)
    fine = 0.4
    low = centre - 11
    grid = low + fine * np.indices((56, 56, 56)).transpose(1, 2, 3, 0)
    drawn = (np.linalg.norm(grid - centre, axis=-1) < 9).astype(np.uint8)
    affine = np.diag([-fine, -fine, fine, 1.0])  # DICOM's left and back are NIfTI's right and front, negated
    affine[:3, 3] = low * (-1, -1, 1)
    nibabel.Nifti1Image(drawn, affine).to_filename(tmp_path / "nii" / "ct" / "mask.nii.gz")
    raw = dicom(tmp_path / "nii")
    back = view_of(Plane(origin, tuple(across), tuple(down), spacing)).back
    found = {item.extra["slice"]: back(item.pair.mask) for unit in raw.units for item in raw.read(unit)}
    for k in range(count):
        mask = found.get(count - 1 - k, np.zeros_like(ball[k]))
        rim = np.abs(np.linalg.norm(places[k] - centre, axis=-1) - 9) < fine
        assert not ((mask != ball[k]) & ~rim).any()
    affine[:3, 3] += 1000
    nibabel.Nifti1Image(drawn, affine).to_filename(tmp_path / "nii" / "ct" / "mask.nii.gz")
    with pytest.raises(UserError, match=r"mask\.nii\.gz: lies elsewhere than the slices"):
        dicom(tmp_path / "nii")


def test_one_series_in_two_directions_is_two_stacks(tmp_path: Path) -> None:
    """Localizers: axial, coronal and sagittal slices in one series."""
    masks = boxes()
    first = series(tmp_path / "a", scan_of(masks), **HU)
    for k, one in enumerate(first[:2]):
        one.ImageOrientationPatient = [1, 0, 0, 0, 0, -1]
        one.ImagePositionPatient = [0, 3.0 * k, 0]
        one.save_as(tmp_path / "a" / f"{k:03d}.dcm", enforce_file_format=True)
    segmentation(tmp_path / "s.dcm", [(masks[k], 1, first[k]) for k in range(4)], placed=False)
    raw = dicom(tmp_path)
    extras = [item.extra for unit in raw.units for item in raw.read(unit)]
    assert sorted((e["plane"], e["slice"]) for e in extras) == [(p, k) for p in ("axial", "coronal") for k in (0, 1)]
    assert len({(e["volume"], e["plane"]) for e in extras}) == len({e["volume"] for e in extras}) == 2
