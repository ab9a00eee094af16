"""Copies are found whatever was done to them, and different pictures are left alone."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from laworder.data.audit import Fingerprint, find_duplicates, fingerprint
from laworder.data.audit.duplicates import ORIENTATIONS, groups, turn
from laworder.data.audit.fingerprints import SIDE
from laworder.data.sources.phantom import PhantomSource


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    """Twelve pictures of twelve patients."""
    source = PhantomSource(12, size=256, pairs_per_patient=1, seed=3)
    return [Image.fromarray(source.read(i).image) for i in range(12)]


def prints(pictures: list[Image.Image]) -> list[Fingerprint | None]:
    return [fingerprint(np.asarray(picture)) for picture in pictures]


def jpeg(picture: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def shifted(picture: Image.Image, pixels: int) -> Image.Image:
    return picture.crop((pixels, pixels // 2, *picture.size)).resize(picture.size)


CHANGES = {
    "JPEG at quality 40": lambda p: jpeg(p, 40),
    "scaled down": lambda p: p.resize((150, 140)),
    "scaled up": lambda p: p.resize((500, 480)),
    "darker": lambda p: ImageEnhance.Brightness(p).enhance(0.7),
    "flatter": lambda p: ImageEnhance.Contrast(p).enhance(0.6),
    "gray": lambda p: p.convert("L").convert("RGB"),
    "cropped by 2 %": lambda p: shifted(p, 5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found_and_nothing_else(pictures: list[Image.Image], change: str) -> None:
    found = find_duplicates(prints([*pictures, *(CHANGES[change](p) for p in pictures)]), mirrored=False)
    pairs = {(twin.a, twin.b) for twin in found.twins}
    expected = {(i, i + 12) for i in range(12)}
    assert pairs <= expected
    assert len(pairs) >= 11
    assert found.identical == []


@pytest.mark.parametrize("orientation", [name for name in ORIENTATIONS if name != "upright"])
def test_a_turned_copy_is_found_with_its_orientation(pictures: list[Image.Image], orientation: str) -> None:
    import torch

    turned = [
        Image.fromarray(turn(torch.from_numpy(np.array(p)).permute(2, 0, 1), orientation).permute(1, 2, 0).numpy())
        for p in pictures
    ]
    found = find_duplicates(prints([*pictures, *turned]))
    assert {tuple(sorted((t.a, t.b))) for t in found.twins} == {(i, i + 12) for i in range(12)}
    inverse = {"quarter turn left": "quarter turn right", "quarter turn right": "quarter turn left"}
    allowed = {orientation, inverse.get(orientation, orientation)}
    assert {t.orientation for t in found.twins} <= allowed
    assert {t.kind for t in found.twins} == {"mirrored"}


def test_mirrored_copies_are_left_out_when_not_asked_for(pictures: list[Image.Image]) -> None:
    flipped = [p.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for p in pictures]
    assert find_duplicates(prints([*pictures, *flipped]), mirrored=False).twins == []


def test_identical_images_form_groups_and_their_twins_are_told_once(pictures: list[Image.Image]) -> None:
    found = find_duplicates(prints([pictures[0], pictures[1], pictures[0], pictures[0], jpeg(pictures[0], 60)]))
    assert found.identical == [[0, 2, 3]]
    assert [(t.a, t.b, t.kind) for t in found.twins] == [(0, 4, "copy")]
    assert groups(found, 5, ("identical", "copy")) == [[0, 2, 3, 4]]
    assert groups(found, 5, ("near",)) == []


def test_gray_and_colour_of_the_same_values_are_copies_not_identical(pictures: list[Image.Image]) -> None:
    gray = np.asarray(pictures[0].convert("L"))[..., None]
    found = find_duplicates([fingerprint(gray), fingerprint(gray.repeat(3, axis=2))])
    assert found.identical == []
    assert [t.kind for t in found.twins] == ["copy"]


def test_featureless_images_are_only_ever_identical() -> None:
    flat = [np.full((64, 64, 1), value, dtype=np.uint8) for value in (0, 0, 90, 255)]
    found = find_duplicates([fingerprint(image) for image in flat])
    assert found.identical == [[0, 1]]
    assert found.twins == []


def test_the_black_frame_of_an_endoscope_makes_no_twins() -> None:
    """Faint, smooth scenes behind one octagon: its edge is all that they share, and the strongest thing in them."""
    y, x = np.mgrid[:256, :256]
    inside = (abs(y - 128) < 110) & (abs(x - 128) < 110) & (abs(y - 128) + abs(x - 128) < 170)
    rng = np.random.default_rng(0)
    scenes = []
    for _ in range(24):
        coarse = Image.fromarray(rng.integers(70, 130, (9, 9), dtype=np.uint8)).resize(
            (256, 256), Image.Resampling.BICUBIC
        )
        scenes.append(np.where(inside, np.asarray(coarse), 4)[..., None].astype(np.uint8))
    assert find_duplicates([fingerprint(scene) for scene in scenes]).twins == []


def test_masks_alone_have_no_duplicates() -> None:
    assert find_duplicates([None, None]).identical == []


def test_the_fingerprint_does_not_see_brightness() -> None:
    rng = np.random.default_rng(0)
    base = np.kron(rng.integers(40, 120, (24, 24)), np.ones((8, 8))).astype(np.uint8)[..., None]
    a, b = fingerprint(base), fingerprint((base + 60).astype(np.uint8))
    assert a.picture.shape == (SIDE, SIDE)
    assert np.abs(a.picture.astype(int) - b.picture).max() <= 1
    assert a.digest != b.digest
