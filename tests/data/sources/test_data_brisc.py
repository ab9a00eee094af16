"""BRISC: both tasks' layouts, empty masks for slices without tumour, plane and tumour from the names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.brisc import brisc
from laworder.errors import UserError


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 20), dtype=np.uint8)).save(path, quality=95)


def release(root: Path) -> Path:
    """Masked slices with 16 gray levels in the masks, as the release has them, and slices without tumour."""
    seed = 0
    for part, kinds in {"train": ("gl_ax", "me_co", "pi_sa"), "test": ("gl_sa",)}.items():
        for number, kind in enumerate(kinds, start=1):
            stem = f"brisc2025_{part}_{number:05d}_{kind}_t1"
            picture(root / f"segmentation_task/{part}/images/{stem}.jpg", seed := seed + 1)
            levels = np.tile(np.linspace(0, 255, 16).astype(np.uint8).repeat(2)[:20], (20, 1))
            mask = root / f"segmentation_task/{part}/masks/{stem}.png"
            mask.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(levels).save(mask)
            # The other task holds the same slices again, in folders by tumour: they are not read twice.
            picture(root / f"classification_task/{part}/glioma/{stem}.jpg", seed)
        for number in (8, 9):
            name = f"brisc2025_{part}_{number:05d}_no_ax_t1.jpg"
            picture(root / f"classification_task/{part}/no_tumor/{name}", seed := seed + 1)
    return root


@pytest.mark.parametrize("inside", [".", "brisc2025"])
def test_pools_masks_and_what_the_names_tell(tmp_path: Path, inside: str) -> None:
    release(tmp_path / "from" / inside)
    head = prepare(brisc(tmp_path / "from"), tmp_path / "to", progress=False)
    assert head["counts"]["pools"] == {"law": 3, "law-test": 1, "order": 5, "order-test": 3}
    assert head["counts"]["empty_masks"] == 4
    prepared = PreparedSource(tmp_path / "to", "order")
    told = [(record["class"], record["plane"]) for record in prepared.records]
    assert told == [
        ("glioma", "axial"), ("meningioma", "coronal"), ("pituitary", "sagittal"), ("none", "axial"), ("none", "axial")
    ]  # fmt: skip
    levels = np.linspace(0, 255, 16).astype(np.uint8).repeat(2)[:20]
    np.testing.assert_array_equal(prepared.read(0).mask, np.tile(levels > 127, (20, 1)))
    assert not prepared.read(3).mask.any()
    assert prepared.read(3).image.shape == (20, 20, 1)


def test_one_task_alone_will_do(tmp_path: Path) -> None:
    release(tmp_path)
    (tmp_path / "segmentation_task").rename(tmp_path / "put away")
    raw = brisc(tmp_path)
    assert set(raw.pools([{"name": u.key, **u.extra} for u in raw.units])) == {"order", "order-test"}


def test_an_image_in_both_parts_is_one_group(tmp_path: Path) -> None:
    root = release(tmp_path / "from")
    twin = root / "segmentation_task/test/images/brisc2025_test_00001_gl_sa_t1.jpg"
    twin.write_bytes((root / "segmentation_task/train/images/brisc2025_train_00002_me_co_t1.jpg").read_bytes())
    prepare(brisc(root), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    group = dict(zip(prepared.names, prepared.groups, strict=True))
    assert group["brisc2025_test_00001_gl_sa_t1"] == "brisc2025_train_00002_me_co_t1"


def test_all_problems_at_once(tmp_path: Path) -> None:
    root = release(tmp_path)
    (root / "segmentation_task/train/masks/brisc2025_train_00001_gl_ax_t1.png").unlink()
    picture(root / "classification_task/test/no_tumor/holiday.jpg", 99)
    with pytest.raises(UserError, match="2 problems") as caught:
        brisc(root)
    assert "brisc2025_train_00001_gl_ax_t1.jpg: no mask of that name" in str(caught.value)
    assert "holiday.jpg: its name does not tell tumour and plane" in str(caught.value)


@pytest.mark.real_data
def test_the_papers_pools_on_the_real_release(shared_data: Path) -> None:
    raw = brisc(shared_data / "brisc2025")
    pools = raw.pools([{"name": unit.key, **unit.extra} for unit in raw.units])
    sizes = {pool: len(names) for pool, names in pools.items()}
    assert sizes == {"law": 3933, "law-test": 860, "order": 5000, "order-test": 1000}
    assert not any("the paper's" in note for note in raw.notes)
