"""Mask files beside DICOM images: pictures and DICOM images with an image's name, volumes with a series' folder's name.

A picture is drawn on the pixels as they are stored, as the viewers that export such masks have them: it is turned with
its image. A NIfTI volume says by its affine where it lies; its voxels are sampled at the pixels of the slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from laworder.data.sources.dicom.geometry import Plane
from laworder.data.sources.dicom.header import SUFFIXES, frames_of, is_dicom, read_header
from laworder.data.sources.dicom.marks import Mark, Marks, Opened, Wanted
from laworder.data.sources.dicom.pixels import stored_values
from laworder.data.sources.dicom.slices import Slice, Stack
from laworder.data.sources.images import open_frames, open_picture, picture_suffixes, shown, stack_size, upright
from laworder.data.sources.masks import MAX_CLASSES, MaskRule
from laworder.data.sources.matching import MASK_SUFFIX, key_of, says_mask
from laworder.data.sources.volumes import Volume, is_volume, labels, open_volume, stored_voxels
from laworder.errors import MissingExtraError, UserError

_TO_DICOM = (-1.0, -1.0, 1.0)  # NIfTI counts to the right and the front, DICOM to the left and the back


@dataclass(frozen=True)
class _Reading:
    """How mask files are read. table: the class of every number; None: lesion or not."""

    table: UInt8[np.ndarray, " 256"] | None

    @property
    def rule(self) -> MaskRule:
        return MaskRule() if self.table is None else MaskRule(index=True)

    def classes(self, values: UInt8[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w"]:
        return (values > 0).astype(np.uint8) if self.table is None else self.table[values]


def add_mask_files(
    files: Sequence[tuple[Path, Path]],
    stacks: Sequence[Stack],
    root: Path,
    wanted: Wanted,
    marks: Marks,
    *,
    unread: Sequence[Path] = (),
) -> tuple[list[str], int]:
    """Put mask files on the slices whose name they have; a line for each that fits none, and how many were passed over.

    files: each with the folder to which its name is relative; root: the folder of the images
    unread: images of which it is already said that they cannot be read: their masks are no fault of their own
    """
    by_file, by_folder = _keys(stacks, root)
    waiting = {key_of(path.relative_to(root), also=SUFFIXES) for path in unread if root in path.parents}
    reading = _Reading(wanted.table() if files else None)
    problems: list[str] = []
    passed = 0
    for path, base in files:
        fits = _volume_fits(path, base, by_folder) if is_volume(path) else _file_fits(path, base, by_file)
        if not fits and not waiting.isdisjoint(_file_keys(path, base)):
            continue
        if not fits:
            # Without a word for "mask" in its name it may be anything: a preview, a logo.
            certain = is_volume(path) or base != root or says_mask(path.relative_to(base))
            problems += [f"{shown(path)}: no image of that name"] if certain else []
            passed += not certain
        elif len(fits) > 1:
            problems.append(f"{shown(path)}: {len(fits)} images or series of that name; give each a folder of its own")
        else:
            try:
                problems += _put(path, fits[0], reading, marks)
            except MissingExtraError:
                raise
            except UserError as error:
                problems.append(str(error))
    return problems, passed


def _keys(stacks: Sequence[Stack], root: Path) -> tuple[dict[str, list[list[Slice]]], dict[str, list[list[Slice]]]]:
    """Slices by the key of their file, and stacks by the key of their folder."""
    by_file: dict[str, list[list[Slice]]] = defaultdict(list)
    by_folder: dict[str, list[list[Slice]]] = defaultdict(list)
    for stack in stacks:
        folders: set[str] = set()
        slices: dict[Path, list[Slice]] = defaultdict(list)
        for one in stack.slices:
            slices[one.path].append(one)
        for path, found in slices.items():
            key = key_of(path.relative_to(root), also=SUFFIXES)
            by_file[key].append(sorted(found, key=lambda one: one.frame))
            folders.add(key.rpartition("/")[0])
        for folder in folders:
            by_folder[folder].append(list(stack.slices))
    return by_file, by_folder


def _file_keys(path: Path, base: Path) -> tuple[str, str]:
    """What the image of a mask file may be called: as the mask itself, or without what says "mask"."""
    key = key_of(path.relative_to(base), also=SUFFIXES)
    return key, MASK_SUFFIX.sub("", key)


def _file_fits(path: Path, base: Path, by_file: dict[str, list[list[Slice]]]) -> list[list[Slice]]:
    return next((by_file[key] for key in _file_keys(path, base) if by_file.get(key)), [])


def _volume_fits(path: Path, base: Path, by_folder: dict[str, list[list[Slice]]]) -> list[list[Slice]]:
    """The stacks of the folder that it is named after, else of the folder in which it lies."""
    key = key_of(path.relative_to(base))
    places = (key, MASK_SUFFIX.sub("", key), key.rpartition("/")[0])
    return next((by_folder[place] for place in places if by_folder.get(place)), [])


def _put(path: Path, slices: Sequence[Slice], reading: _Reading, marks: Marks) -> list[str]:
    """Marks for all slices of a file or stack; a line where a file holds another number of frames."""
    if is_volume(path):
        planes = [one.plane for one in slices if one.plane is not None]
        if len(planes) < len(slices):
            return [f"{shown(path)}: a volume, but its images have no positions; give a picture for each"]
        if _apart(open_volume(path), [(one, one.plane) for one in slices if one.plane is not None]):
            return [f"{shown(path)}: lies elsewhere than the slices of its series; resample it"]
        for one in slices:
            marks.setdefault(one.key, []).append(Mark(path, _volume_drawer(path, reading)))
        return []
    frames = frames_of(read_header(path)) if is_dicom(path) else stack_size(path)
    if frames != len(slices):
        return [f"{shown(path)}: {frames} frames, but its image has {len(slices)}"]
    for number, one in enumerate(slices):
        marks.setdefault(one.key, []).append(Mark(path, _picture_drawer(path, number, frames, reading)))
    return []


def _apart(volume: Volume, slices: Sequence[tuple[Slice, Plane]]) -> bool:
    """Whether the boxes around a volume and around slices do not touch."""
    ends = np.array(list(product(*((-0.5, n - 0.5) for n in volume.shape))))
    theirs = (ends @ volume.image.affine[:3, :3].T + volume.image.affine[:3, 3]) * _TO_DICOM
    ours = np.concatenate(
        [plane.at(np.array(list(product((-0.5, one.rows - 0.5), (-0.5, one.columns - 0.5))))) for one, plane in slices]
    )
    return bool((ours.max(axis=0) < theirs.min(axis=0)).any() or (theirs.max(axis=0) < ours.min(axis=0)).any())


def _picture_drawer(
    path: Path, number: int, frames: int, reading: _Reading
) -> Callable[[Slice, Opened], UInt8[np.ndarray, "h w"]]:
    def draw(one: Slice, opened: Opened) -> UInt8[np.ndarray, "h w"]:
        if path.suffix.lower() in picture_suffixes():
            several = opened.held(path, lambda: open_frames(path)) if frames > 1 else ()
            picture = several[number] if several else upright(*open_picture(path))
            mask = reading.classes(reading.rule.read(path, picture))
        else:
            mask = reading.classes(_numbers(path, stored_values(path, opened.image(path, "mask"), number)))
        if mask.shape != (one.rows, one.columns):
            raise UserError(
                f"{shown(path)}: {mask.shape[1]}×{mask.shape[0]} pixels, but its image {shown(one.path)} has "
                f"{one.columns}×{one.rows}"
            )
        return mask

    return draw


def _numbers(path: Path, values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    if values.ndim != 2 or int(values.min()) < 0 or int(values.max()) > 255:
        raise UserError(f"{shown(path)}: a mask must be gray, with values from 0 to 255")
    return values.astype(np.uint8)


def _volume_drawer(path: Path, reading: _Reading) -> Callable[[Slice, Opened], UInt8[np.ndarray, "h w"]]:
    def draw(one: Slice, opened: Opened) -> UInt8[np.ndarray, "h w"]:
        assert one.plane is not None, "_put saw to it"
        voxels, to_voxel = opened.held(path, lambda: _voxels(path))
        points = one.plane.points(one.rows, one.columns) * _TO_DICOM
        where = np.rint(points @ to_voxel[:3, :3].T + to_voxel[:3, 3]).astype(np.int64)
        there = ((where >= 0) & (where < voxels.shape)).all(axis=1)
        mask = np.zeros(len(points), dtype=np.uint8)
        mask[there] = voxels[tuple(where[there].T)]
        return reading.classes(mask.reshape(one.rows, one.columns))

    return draw


def _voxels(path: Path) -> tuple[UInt8[np.ndarray, "x y z"], Any]:
    """A volume's labels and the matrix from millimetres to voxels."""
    volume = open_volume(path)
    return stored_voxels(volume, labels(path, MAX_CLASSES - 1)), np.linalg.inv(volume.image.affine)
