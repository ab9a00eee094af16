"""Folders of one's own through `prepare`: pictures, NIfTI volumes and TIFF stacks side by side."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.anyfolder import FolderRule, any_folder
from laworder.errors import UserError


def stack(path: Path, frames: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=rest)


def masks(slices: int = 5, value: int = 255) -> np.ndarray:
    """Empty on the first slice, then 6, 12 … pixels."""
    drawn = np.zeros((slices, 16, 20), dtype=np.uint8)
    for k in range(slices):
        drawn[k, 2:8, 4 : 4 + k] = value
    return drawn


def prepared(source: Path, to: Path, **rule: object) -> PreparedSource:
    prepare(any_folder(source, FolderRule(**rule)), to, progress=False)  # type: ignore[arg-type]
    return PreparedSource(to)


@pytest.mark.parametrize("kind", ["gray", "deep", "colour"])
def test_tiff_stacks(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    shape = (5, 16, 20, 3) if kind == "colour" else (5, 16, 20)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    stack(tmp_path / "from/images/scan.tif", images.astype(np.uint16) * 16 if kind == "deep" else images)
    stack(tmp_path / "from/masks/scan.tiff", masks())
    found = prepared(tmp_path / "from", tmp_path / "to")
    assert found.names == [f"scan-{k:03d}" for k in (1, 2, 3, 4)]
    assert set(found.groups) == {"scan"}
    for k in (1, 2, 3, 4):
        pair = found.read(k - 1)
        np.testing.assert_array_equal(pair.mask, masks()[k] > 0)
        # Deep stacks are scaled by the range of the whole stack: the same map for every slice.
        np.testing.assert_allclose(pair.image.squeeze(), images[k], atol=2 if kind == "deep" else 0)


def test_empty_slices_are_kept_when_asked_for(tmp_path: Path) -> None:
    stack(tmp_path / "from/scan.tif", np.full((5, 16, 20), 7, dtype=np.uint8))
    stack(tmp_path / "from/scan_mask.tif", masks())
    assert len(prepared(tmp_path / "from", tmp_path / "all", min_pixels=0)) == 5
    assert len(prepared(tmp_path / "from", tmp_path / "big", min_pixels=13)) == 2


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_volumes(tmp_path: Path, suffix: str) -> None:
    """Stored as RAS, as most tools do: slice 0 is the top, rows go backwards, columns to the patient's left."""
    values = np.random.default_rng(1).normal(50, 200, (5, 16, 20)).astype(np.float32)
    drawn = masks(value=2)
    for name, volume in (("images/s 1", values), ("masks/s 1", drawn)):
        path = tmp_path / "from" / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        ras = np.transpose(volume, (2, 1, 0))[::-1, ::-1, ::-1]
        nibabel.save(nibabel.Nifti1Image(ras, np.diag([0.7, 0.8, 3.0, 1])), path)
    found = prepared(tmp_path / "from", tmp_path / "to", window="-100,200", index=True, classes=("no", "a", "b"))
    assert found.names == [f"s_1-{k:03d}" for k in (1, 2, 3, 4)]
    np.testing.assert_array_equal(found.read(2).mask, drawn[3])
    np.testing.assert_allclose(found.read(2).image[..., 0], np.clip((values[3] + 100) / 300, 0, 1) * 255, atol=0.51)
    assert found.records[0]["spacing_mm"] == [0.8, 0.7]
    assert found.records[0]["slice_mm"] == 3.0
    own = prepared(tmp_path / "from", tmp_path / "own")
    assert own.read(0).mask.max() == 1
    low, high = np.percentile(values, (0.05, 99.95))
    expected = np.clip((values[1] - low) / (high - low), 0, 1) * 255
    assert np.abs(own.read(0).image[..., 0] - expected).mean() < 8


def test_kinds_may_lie_side_by_side(tmp_path: Path) -> None:
    stack(tmp_path / "from/images/a.tif", np.full((3, 16, 20), 7, dtype=np.uint8))
    stack(tmp_path / "from/masks/a.tif", masks(3))
    Image.fromarray(np.full((9, 9), 5, dtype=np.uint8)).save(tmp_path / "from/images/b.png")
    Image.fromarray(np.eye(9, dtype=np.uint8)).save(tmp_path / "from/masks/b.png")
    assert prepared(tmp_path / "from", tmp_path / "to").names == ["a-001", "a-002", "b"]


def test_declared_colours_and_groups(tmp_path: Path) -> None:
    colours = np.zeros((9, 9, 3), dtype=np.uint8)
    colours[2:4, :, 0] = 255
    colours[6:8, :, 1] = 255
    for patient in ("p1", "p2"):
        for kind, pixels in (("images", np.full((9, 9, 3), 90, dtype=np.uint8)), ("masks", colours)):
            (tmp_path / "from" / kind / patient).mkdir(parents=True)
            Image.fromarray(pixels).save(tmp_path / "from" / kind / patient / "x.png")
    rule = {"colours": ("#ff0000=1", "#00ff00=2"), "classes": ("no", "red", "green"), "group": "folder"}
    found = prepared(tmp_path / "from", tmp_path / "to", **rule)
    np.testing.assert_array_equal(found.read(0).mask[:, 0], [0, 0, 1, 1, 0, 0, 2, 2, 0])
    assert found.groups == ["p1", "p2"]
    with pytest.raises(UserError, match=r"colours: write #rrggbb=CLASS, not '#ff0000:1'"):
        prepared(tmp_path / "from", tmp_path / "to2", colours=("#ff0000:1",))


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    root = tmp_path / "from"
    stack(root / "images/frames.tif", np.full((3, 16, 20), 7, dtype=np.uint8))
    stack(root / "masks/frames.tif", masks(4))
    (root / "images/mixed.nii.gz").write_bytes(b"")
    Image.fromarray(masks(2)[1]).save(root / "masks/mixed.png")
    (root / "images/cut.tif").write_bytes((root / "images/frames.tif").read_bytes()[:-300])
    stack(root / "masks/cut.tif", masks(3))
    for kind in ("images", "masks"):
        (root / kind / "broken.nii.gz").write_bytes(b"x" * 99)
    with pytest.raises(UserError, match="4 problems") as caught:
        prepared(root, tmp_path / "to")
    text = str(caught.value)
    for part in (
        "masks/frames.tif: frames: 4 of",
        "mixed.png: a picture, where its partner",
        "cut.tif",
        "broken.nii.gz",
    ):
        assert part in text
    (root / "images/alone.nii.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"alone.nii.gz: no mask of that name"):
        any_folder(root)
