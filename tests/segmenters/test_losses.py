"""The losses of the deeply supervised rivals, against loops over pixels that follow the formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from laworder.errors import UserError
from laworder.segmenters.losses import bce_dice_loss, deep_supervision_loss, structure_loss


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def bce(z: float, m: float) -> float:
    return -m * math.log(sigmoid(z)) - (1 - m) * math.log(1 - sigmoid(z))


def structure_by_hand(logits: Tensor, mask: Tensor) -> float:
    """One map, a pixel at a time."""
    z, m = logits.tolist(), mask.tolist()
    height, width = mask.shape
    weights = weighted_bce = both = either = 0.0
    for row in range(height):
        for column in range(width):
            rows = range(max(0, row - 15), min(height, row + 16))
            columns = range(max(0, column - 15), min(width, column + 16))
            mean = sum(m[r][c] for r in rows for c in columns) / 31**2
            w, p, t = 1 + 5 * abs(mean - m[row][column]), sigmoid(z[row][column]), m[row][column]
            weights += w
            weighted_bce += w * bce(z[row][column], t)
            both += w * p * t
            either += w * (p + t - p * t)
    return weighted_bce / weights + 1 - (both + 1) / (either + 1)


@pytest.fixture
def maps() -> tuple[Tensor, Tensor]:
    logits = torch.randn(2, 2, 20, 37, dtype=torch.float64)
    mask = torch.zeros_like(logits)
    mask[0, 0, 3:9, 10:30] = 1
    mask[1, 0, 15:, :4] = 1
    mask[1, 1] = (torch.rand(20, 37) > 0.5).double()
    return logits, mask  # (0, 1) stays empty


def test_structure_loss_is_its_formula(maps: tuple[Tensor, Tensor]) -> None:
    logits, mask = maps
    expected = sum(structure_by_hand(logits[b, k], mask[b, k]) for b in range(2) for k in range(2)) / 4
    assert structure_loss(logits, mask).item() == pytest.approx(expected, rel=1e-12)


def test_structure_loss_weighs_its_cross_entropy() -> None:
    """The same mistake costs more at the lesion's border than far from it: the authors' own code misses this."""
    mask = torch.zeros(1, 1, 96, 96)
    mask[..., :10, :10] = 1
    right = torch.where(mask > 0, 8.0, -8.0)
    near, far = right.clone(), right.clone()
    near[..., 10:14, 4:8] = 8.0
    far[..., 80:84, 80:84] = 8.0
    assert structure_loss(near, mask) > structure_loss(far, mask) + 0.01


def test_bce_dice_loss_is_its_formula(maps: tuple[Tensor, Tensor]) -> None:
    logits, mask = maps
    z, m = logits.flatten().tolist(), mask.flatten().tolist()
    cross_entropy = sum(bce(a, b) for a, b in zip(z, m, strict=True)) / len(z)
    dice = 0.0
    for map_z, map_m in zip(logits.flatten(0, 1), mask.flatten(0, 1), strict=True):
        p, t = [sigmoid(a) for a in map_z.flatten().tolist()], map_m.flatten().tolist()
        dice += (2 * sum(a * b for a, b in zip(p, t, strict=True)) + 1) / (sum(p) + sum(t) + 1) / 4
    assert bce_dice_loss(logits, mask).item() == pytest.approx(cross_entropy + 1 - dice, rel=1e-12)


@pytest.mark.parametrize("loss", [structure_loss, bce_dice_loss])
def test_masks_of_any_dtype_count(loss, maps: tuple[Tensor, Tensor]) -> None:
    logits, mask = maps
    assert torch.equal(loss(logits, mask.bool()), loss(logits, mask))
    assert torch.equal(loss(logits, mask.to(torch.uint8)), loss(logits, mask))


@pytest.mark.parametrize("loss", [structure_loss, bce_dice_loss])
def test_right_is_nearly_free_and_wrong_is_dear(loss, maps: tuple[Tensor, Tensor]) -> None:
    mask = maps[1]
    right = torch.where(mask > 0, 30.0, -30.0)
    assert loss(right, mask) < 1e-6
    assert loss(-right, mask) > 1


@pytest.mark.parametrize("loss", [structure_loss, bce_dice_loss])
@pytest.mark.parametrize("fill", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_empty_and_full_masks_in_any_precision_give_finite_gradients(loss, fill: float, dtype: torch.dtype) -> None:
    logits = (40 * torch.randn(1, 1, 300, 300)).to(dtype).requires_grad_()
    value = loss(logits, torch.full((1, 1, 300, 300), fill, dtype=dtype))
    value.backward()
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_deep_supervision_sums_with_weights(maps: tuple[Tensor, Tensor]) -> None:
    logits, mask = maps
    outputs = [logits, 2 * logits, -logits]
    terms = [structure_loss(out, mask) for out in outputs]
    assert torch.isclose(deep_supervision_loss(outputs, mask), terms[0] + terms[1] + terms[2])
    weighted = deep_supervision_loss(outputs, mask, loss=bce_dice_loss, weights=(1.0, 0.5, 0.0))
    expected = bce_dice_loss(outputs[0], mask) + 0.5 * bce_dice_loss(outputs[1], mask)
    assert torch.isclose(weighted, expected)


def test_mistakes_are_named(maps: tuple[Tensor, Tensor]) -> None:
    logits, mask = maps
    with pytest.raises(UserError, match=r"logits and mask must both be .* not \(2, 2, 20, 37\) and \(2, 1, 20, 37\)"):
        structure_loss(logits, mask[:, :1])
    with pytest.raises(UserError, match="logits and mask"):
        bce_dice_loss(logits[0], mask[0])
    with pytest.raises(UserError, match="weights names 1 outputs, but there are 2"):
        deep_supervision_loss([logits, logits], mask, weights=[1.0])
    with pytest.raises(UserError, match="outputs is empty"):
        deep_supervision_loss([], mask)
