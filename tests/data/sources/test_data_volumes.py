"""NIfTI files that are odd, as programs write them, and damaged ones."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import nibabel
import numpy as np
import pytest

from laworder.data.sources.anyfolder import FolderRule, any_folder
from laworder.data.sources.volumes import MAX_VOXELS, labels, open_volume, read_volume, value_range, windowed
from laworder.errors import UserError


def volume(path: Path, values: np.ndarray, affine: np.ndarray | None = None) -> Path:
    nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine).to_filename(path)
    return path


def test_a_series_of_one_volume_is_a_volume(tmp_path: Path) -> None:
    values = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
    plain = open_volume(volume(tmp_path / "a.nii.gz", values))
    one = open_volume(volume(tmp_path / "b.nii.gz", values[..., None]))
    assert one.shape == plain.shape
    convert = windowed(*value_range(plain))
    np.testing.assert_array_equal(read_volume(one, convert), read_volume(plain, convert))
    with pytest.raises(UserError, match=r"c\.nii: a volume must have 3 dimensions"):
        open_volume(volume(tmp_path / "c.nii", np.zeros((4, 5, 6, 2), np.int16)))


def test_voxels_that_are_no_numbers(tmp_path: Path) -> None:
    colour = np.zeros((4, 5, 6), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    for name, values in (("colour.nii", colour), ("complex.nii", np.zeros((4, 5, 6), np.complex64))):
        with pytest.raises(UserError, match=f"{name}: its voxels are no plain numbers"):
            open_volume(volume(tmp_path / name, values))
    holes = np.full((4, 5, 6), np.nan, dtype=np.float32)
    assert value_range(open_volume(volume(tmp_path / "nan.nii", holes))) == (0.0, 1.0)
    with pytest.raises(UserError, match="labels must be whole numbers"):
        read_volume(open_volume(tmp_path / "nan.nii"), labels(tmp_path / "nan.nii", 3))


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    path = volume(tmp_path / "a.nii", np.zeros((4, 5, 6), np.int16))
    content = bytearray(path.read_bytes())
    content[42:48] = np.array([4096, 4096, 4096], dtype="<i2").tobytes()
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"more than the {MAX_VOXELS} voxels"):
        open_volume(path)


def test_damage_anywhere_is_read_or_refused_by_name(tmp_path: Path) -> None:
    rng = random.Random(0)
    scan = volume(tmp_path / "a.nii", np.arange(480, dtype=np.int16).reshape(8, 10, 6))
    volume(tmp_path / "a_mask.nii", np.ones((8, 10, 6), np.uint8))
    content = scan.read_bytes()
    for turn in range(200):
        data = bytearray(content)
        if turn % 4 == 0:
            data = data[: rng.randrange(len(data))]
        for _ in range(rng.randrange(1, 6)):
            if data:
                data[rng.randrange(min(len(data), 400))] ^= 1 << rng.randrange(8)
        packed = gzip.compress(data, 1)
        scan.unlink(missing_ok=True)
        scan = tmp_path / ("a.nii" if turn % 2 else "a.nii.gz")
        scan.write_bytes(bytes(data) if turn % 2 else packed)
        said = ""
        try:
            raw = any_folder(tmp_path, FolderRule(window="-10,500"))
            for unit in raw.units:
                for item in raw.read(unit):
                    assert item.pair.image.dtype == np.uint8
        except UserError as error:
            said = str(error)
        assert not said or scan.name in said
