"""What mask files mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from laworder.data.sources.images import open_picture
from laworder.data.sources.masks import MaskRule
from laworder.errors import UserError

SHAPE = np.zeros((64, 64), np.uint8)
SHAPE[20:40, 10:30] = 1
CLASSES = SHAPE.copy()
CLASSES[45:55, 40:60] = 2
VOC = [0, 0, 0, 128, 0, 0, 0, 128, 0]


def read(picture: Image.Image, tmp_path: Path, rule: MaskRule | None = None, suffix: str = ".png") -> np.ndarray:
    picture.save(tmp_path / f"m{suffix}")
    path = tmp_path / f"m{suffix}"
    return (rule or MaskRule()).read(path, open_picture(path)[0])


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return 2 * np.logical_and(a, b).sum() / (a.astype(bool).sum() + b.astype(bool).sum())


def rgb(shape: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.where(shape[..., None] > 0, np.array(colour, np.uint8), 0).astype(np.uint8)


@pytest.mark.parametrize("level", [1, 2, 76, 127, 128, 255])
@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_two_levels_are_background_and_lesion(level: int, suffix: str, tmp_path: Path) -> None:
    assert np.array_equal(read(Image.fromarray(SHAPE * np.uint8(level)), tmp_path, suffix=suffix), SHAPE)


@pytest.mark.parametrize(
    "picture",
    [
        Image.fromarray(SHAPE.astype(bool)),
        Image.fromarray(SHAPE.astype(np.uint16)),
        Image.fromarray(SHAPE.astype(np.uint16) * 65535),
        Image.fromarray(SHAPE.astype(np.int32)),
        Image.fromarray(rgb(SHAPE, (255, 255, 255))),
        Image.fromarray(rgb(SHAPE, (0, 0, 9))),
        Image.fromarray(np.dstack([rgb(SHAPE, (255, 255, 255)), np.full_like(SHAPE, 255)])),
        Image.fromarray(np.dstack([np.full_like(rgb(SHAPE, (1, 1, 1)), 255), SHAPE * np.uint8(255)])),
    ],
    ids=["1-bit", "16-bit 0/1", "16-bit 0/65535", "32-bit", "rgb", "dark blue", "opaque rgba", "white where opaque"],
)
def test_every_depth_and_mode(picture: Image.Image, tmp_path: Path) -> None:
    assert np.array_equal(read(picture, tmp_path, suffix=".tif"), SHAPE)


def test_palette_masks_are_lesion_wherever_not_black(tmp_path: Path) -> None:
    picture = Image.fromarray(CLASSES, "P")
    picture.putpalette(VOC)
    assert np.array_equal(read(picture, tmp_path), CLASSES > 0)


def test_colours_are_lesion_unless_declared(tmp_path: Path) -> None:
    coloured = rgb(CLASSES == 1, (255, 0, 0)) + rgb(CLASSES == 2, (0, 0, 60))
    assert np.array_equal(read(Image.fromarray(coloured), tmp_path), CLASSES > 0)
    rule = MaskRule(colours={"#ff0000": 1, "#00003C": 2})
    assert np.array_equal(read(Image.fromarray(coloured), tmp_path, rule), CLASSES)
    with pytest.raises(UserError, match=r"m\.png: undeclared colours in a mask: #00003c"):
        read(Image.fromarray(coloured), tmp_path, MaskRule(colours={"#ff0000": 1}))


def test_soft_edges_and_jpeg_are_cut_at_the_middle(tmp_path: Path) -> None:
    hard = Image.fromarray(SHAPE * np.uint8(255))
    assert dice(read(hard.filter(ImageFilter.GaussianBlur(1)), tmp_path), SHAPE) > 0.98
    assert dice(read(hard, tmp_path, suffix=".jpg"), SHAPE) > 0.99
    red = Image.fromarray(rgb(SHAPE, (255, 0, 0)))
    assert dice(read(red, tmp_path, suffix=".jpg"), SHAPE) > 0.95
    assert dice(read(red, tmp_path, MaskRule(colours={"#ff0000": 1}), suffix=".jpg"), SHAPE) > 0.95
    levels = np.linspace(0, 1, 64, dtype=np.float32)[None].repeat(64, 0)
    fractions = np.where(SHAPE > 0, 1, np.where(levels > 0.97, levels * 0.3, 0)).astype(np.float32)
    assert np.array_equal(read(Image.fromarray(fractions), tmp_path, suffix=".tif"), SHAPE)
    exact = np.zeros((64, 64), np.uint8)
    exact[0, :3] = (127, 128, 255)
    assert read(Image.fromarray(exact), tmp_path)[0, :3].tolist() == [0, 1, 1]


def test_empty_and_full_masks(tmp_path: Path) -> None:
    assert not read(Image.fromarray(SHAPE * np.uint8(0)), tmp_path).any()
    for level in (1, 255):
        assert read(Image.fromarray(np.full((8, 8), level, np.uint8)), tmp_path).all()


def test_class_indices_are_refused_until_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"m\.png: a mask with levels 0, 1, 2: ask for class indices"):
        read(Image.fromarray(CLASSES), tmp_path)
    for rule in (MaskRule(index=True), MaskRule(index=True, classes=3)):
        assert np.array_equal(read(Image.fromarray(CLASSES), tmp_path, rule), CLASSES)
        assert np.array_equal(read(Image.fromarray(CLASSES.astype(np.uint16)), tmp_path, rule), CLASSES)
        assert np.array_equal(read(Image.fromarray(SHAPE * np.uint8(255)), tmp_path, rule), SHAPE)
        palette = Image.fromarray(CLASSES, "P")
        palette.putpalette(VOC)
        assert np.array_equal(read(palette, tmp_path, rule), CLASSES)
        gray_rgb = Image.fromarray(np.dstack([CLASSES] * 3))
        assert np.array_equal(read(gray_rgb, tmp_path, rule), CLASSES)


@pytest.mark.parametrize(
    ("picture", "rule", "says"),
    [
        (Image.fromarray(CLASSES), MaskRule(index=True, classes=2), "too many levels.*indices are 0 to 1"),
        (Image.fromarray(CLASSES * np.uint8(60)), MaskRule(index=True), "too many levels"),
        (Image.fromarray(rgb(SHAPE, (255, 0, 0))), MaskRule(index=True), "declare its colours"),
        (Image.fromarray(CLASSES * np.float32(0.75)), MaskRule(index=True), "too many levels"),
        (Image.fromarray(-SHAPE.astype(np.int32)), MaskRule(), "negative"),
        (Image.fromarray(-SHAPE.astype(np.int32)), MaskRule(index=True), "too many levels"),
        (Image.fromarray(SHAPE * np.float32("nan")), MaskRule(), "not numbers"),
        (Image.fromarray(CLASSES.astype(np.uint16)), MaskRule(colours={"#ff0000": 1}), "where colours were declared"),
        (Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64)), MaskRule(), r"too many levels \(4096"),
    ],
)
def test_masks_that_do_not_fit_the_rule_are_named(
    picture: Image.Image, rule: MaskRule, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=rf"m\.tif: .*{says}"):
        read(picture, tmp_path, rule, suffix=".tif")


def test_a_picture_is_no_mask(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for picture in (Image.fromarray(noise), Image.fromarray(noise[..., 0])):
        with pytest.raises(UserError, match="too many levels"):
            read(picture, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"index": True, "colours": {"#ff0000": 1}}, "either index or colours"),
        ({"index": True, "classes": 1}, "classes must lie between 2 and 64"),
        ({"colours": {"red": 1}}, "'#rrggbb', not 'red'"),
        ({"colours": {"#ff0000": 64}}, "class of #ff0000"),
    ],
)
def test_rules_that_make_no_sense(arguments: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        MaskRule(**arguments)
