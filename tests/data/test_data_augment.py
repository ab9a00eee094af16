"""Augmentation: image and mask move together, from one generator, on the device, in one graph."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from laworder.data.augment import RECIPES, Augment, apply, recipe, recolour
from laworder.errors import UserError

STILL = RECIPES["none"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(count: int = 4, channels: int = 3, height: int = 32, width: int = 32) -> tuple[Tensor, Tensor]:
    """Smooth random images, and masks that are where the first channel is bright."""
    coarse = torch.rand(count, channels, 5, 5, generator=generator(9))
    images = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    return images, (images[:, :1] > 0.5).to(torch.uint8)


def test_nothing_asked_changes_nothing() -> None:
    images, masks = batch()
    out, moved = STILL(images, masks, generator())
    assert torch.equal(out, images)
    assert torch.equal(moved, masks)


@pytest.mark.parametrize(("flips", "dims"), [((1.0, 0.0), (3,)), ((0.0, 1.0), (2,)), ((1.0, 1.0), (2, 3))])
def test_certain_flips_are_exact_mirrors(flips: tuple[float, float], dims: tuple[int, ...]) -> None:
    images, masks = batch(height=24, width=40)
    out, moved = Augment(flip_h=flips[0], flip_v=flips[1], rotate=0)(images, masks, generator())
    torch.testing.assert_close(out, images.flip(dims), atol=1e-5, rtol=0)
    assert torch.equal(moved, masks.flip(dims))


def test_flips_happen_as_often_as_asked() -> None:
    affine = Augment(flip_h=0.25, flip_v=0.75, rotate=0).draw(4000, generator=generator()).affine
    assert (affine[:, 0, 0] < 0).float().mean() == pytest.approx(0.25, abs=0.03)
    assert (affine[:, 1, 1] < 0).float().mean() == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (48, 96)])
def test_rotation_turns_pixels_by_the_angle(height: int, width: int) -> None:
    """A disc off the middle lands where the rotation matrix takes it, on oblong pictures too, and stays a disc."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    start = (14.0, 3.0)
    disc = ((x - width / 2 - start[0]) ** 2 + (y - height / 2 - start[1]) ** 2 < 36).to(torch.uint8)[None, None]
    augment = Augment(flip_h=0, flip_v=0, rotate=40)
    for seed in range(5):
        drawn = augment.draw(1, aspect=height / width, generator=generator(seed))
        cos, sin = float(drawn.affine[0, 0, 0]), float(drawn.affine[0, 1, 0]) * height / width
        assert cos**2 + sin**2 == pytest.approx(1, abs=1e-5)
        assert abs(math.degrees(math.atan2(sin, cos))) <= 40
        _, moved = apply(disc.float(), disc, drawn)
        rows, columns = torch.nonzero(moved[0, 0], as_tuple=True)
        # The map is output → input, so the disc goes through its transpose.
        landed = (cos * start[0] + sin * start[1], -sin * start[0] + cos * start[1])
        assert float(columns.float().mean()) + 0.5 - width / 2 == pytest.approx(landed[0], abs=0.5)
        assert float(rows.float().mean()) + 0.5 - height / 2 == pytest.approx(landed[1], abs=0.5)
        assert moved.sum() == pytest.approx(disc.sum().item(), rel=0.1)


def test_zoom_and_shift_change_area_and_place() -> None:
    square = torch.zeros(64, 1, 64, 64)
    square[:, :, 24:40, 24:40] = 1
    zoomed = Augment(flip_h=0, flip_v=0, rotate=0, scale=0.5)(square, square, generator())[1]
    area = (zoomed.sum((1, 2, 3)) / 256).sqrt()
    assert 1 / 1.5 - 0.1 < area.min() < 0.8
    assert 1.2 < area.max() < 1.6
    shifted = Augment(flip_h=0, flip_v=0, rotate=0, shift=0.25)(square, square, generator())[1]
    rows = shifted.sum(3).argmax(2).float()
    assert rows.min() < 16
    assert rows.max() > 32
    assert shifted.sum((1, 2, 3)).min() > 200  # a quarter of 64 keeps the square inside


@pytest.mark.parametrize("seed", range(3))
def test_image_and_mask_stay_together(seed: int) -> None:
    images, _ = batch(8)
    masks = (images[:, :1] > 0.5).to(torch.uint8)
    out, moved = Augment(rotate=30, scale=0.3, shift=0.1)(images, masks, generator(seed))
    inside = out.amax(1, keepdim=True) > 0
    agree = ((out[:, :1] > 0.5) == moved.bool())[inside].float().mean()
    assert agree > 0.95  # pixels on the rim fall either way


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bool])
def test_masks_keep_their_type_and_values(dtype: torch.dtype) -> None:
    images, _ = batch()
    masks = (images[:, :1] * 3.99).to(torch.uint8).to(dtype)
    out, moved = recipe("strong")(images, masks, generator())
    assert moved.dtype == dtype
    assert set(moved.unique().tolist()) <= set(masks.unique().tolist()) | {0}
    assert out.dtype == torch.float32


@pytest.mark.parametrize("channels", [1, 3])
def test_colours_stay_in_range_and_change(channels: int) -> None:
    images, masks = batch(16, channels)
    augment = dataclasses.replace(RECIPES["strong"], flip_h=0, flip_v=0, rotate=0, scale=0, shift=0)
    out, moved = augment(images, masks, generator())
    assert torch.equal(moved, masks)
    assert out.min() >= 0
    assert out.max() <= 1
    assert (out - images).abs().mean() > 0.02


@pytest.mark.parametrize("field", ["brightness", "contrast", "gamma", "saturation", "hue"])
def test_each_colour_option_acts_alone(field: str) -> None:
    images, masks = batch(6)
    images = images * 0.6 + 0.2
    augment = Augment(flip_h=0, flip_v=0, rotate=0, **{field: 0.3 if field != "hue" else 30.0})
    out, _ = augment(images, masks, generator())
    assert (out - images).abs().amax((1, 2, 3)).max() > 0.01
    luma = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    bright = lambda t: (t * luma).sum(1)  # noqa: E731
    if field in ("saturation", "hue"):
        torch.testing.assert_close(bright(out), bright(images), atol=2e-2, rtol=0)
    if field == "contrast":
        torch.testing.assert_close(out.mean((1, 2, 3)), images.mean((1, 2, 3)), atol=5e-3, rtol=0)


def test_the_same_generator_state_draws_the_same_and_the_global_one_is_untouched() -> None:
    images, masks = batch()
    before = torch.get_rng_state()
    first = recipe("strong")(images, masks, generator(3))
    assert torch.equal(torch.get_rng_state(), before)
    again, other = recipe("strong")(images, masks, generator(3)), recipe("strong")(images, masks, generator(4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_switching_one_option_on_leaves_the_others_draws() -> None:
    plain, more = Augment().draw(8, generator=generator()), Augment(brightness=0.3).draw(8, generator=generator())
    assert torch.equal(plain.affine, more.affine)
    assert not torch.equal(plain.brightness, more.brightness)


@pytest.mark.untyped
def test_compiles_as_one_graph() -> None:
    images, masks = batch()
    drawn = RECIPES["strong"].draw(4, generator=generator())
    compiled = torch.compile(apply, fullgraph=True, backend="aot_eager")
    expected, out = apply(images, masks, drawn), compiled(images, masks, drawn)
    torch.testing.assert_close(out[0], expected[0], atol=1e-5, rtol=0)
    assert torch.equal(out[1], expected[1])


def test_gradients_reach_the_image() -> None:
    images = batch(2)[0].requires_grad_()
    recolour(images * 0, RECIPES["strong"].draw(2, generator=generator())).sum().backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()


def test_the_papers_recipe_is_flips_and_rotation() -> None:
    paper = recipe("paper")
    assert (paper.flip_h, paper.flip_v, paper.rotate) == (0.5, 0.5, 15.0)
    assert paper.geometric
    assert not paper.photometric
    assert (paper.scale, paper.shift) == (0, 0)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'strong'"):
        recipe("storng")
    with pytest.raises(UserError, match=r"augment\.rotate must lie between 0 and 180"):
        Augment(rotate=-3)
    with pytest.raises(UserError, match=r"augment\.flip_h"):
        Augment(flip_h=float("nan"))
