"""The segmentation loss against loops written by hand."""

from __future__ import annotations

import math

import pytest
import torch

from laworder.segmentation.losses import segmentation_loss


def test_bce_dice_by_hand() -> None:
    logits = torch.randn(3, 1, 4, 5)
    mask = (torch.rand(3, 1, 4, 5) > 0.6).to(torch.uint8)
    parts = segmentation_loss(logits, mask)
    bce = dice = 0.0
    for z, y in zip(logits.flatten(1).tolist(), mask.flatten(1).tolist(), strict=True):
        p = [1 / (1 + math.exp(-v)) for v in z]
        bce -= sum(math.log(a) if b else math.log(1 - a) for a, b in zip(p, y, strict=True)) / (3 * 20)
        dice += (1 - (2 * sum(a * b for a, b in zip(p, y, strict=True)) + 1) / (sum(p) + sum(y) + 1)) / 3
    assert float(parts["bce"]) == pytest.approx(bce, rel=1e-5)
    assert float(parts["dice"]) == pytest.approx(dice, rel=1e-5)


def test_empty_masks_are_finite_and_reward_silence() -> None:
    mask = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    quiet = sum(segmentation_loss(torch.full((2, 1, 8, 8), -20.0), mask).values())
    loud = sum(segmentation_loss(torch.full((2, 1, 8, 8), 20.0), mask).values())
    assert 0 <= float(quiet) < 1e-3 < float(loud)


def test_several_classes_by_hand() -> None:
    logits = torch.randn(2, 3, 4, 4)
    mask = torch.randint(0, 3, (2, 1, 4, 4), dtype=torch.uint8)
    parts = segmentation_loss(logits, mask)
    p = torch.softmax(logits, 1)
    ce = 0.0
    for b in range(2):
        for i in range(4):
            for j in range(4):
                ce -= math.log(float(p[b, int(mask[b, 0, i, j]), i, j])) / 32
    dice = 0.0
    for b in range(2):
        for k in (1, 2):
            y = (mask[b, 0] == k).float()
            dice += (1 - float((2 * (p[b, k] * y).sum() + 1) / (p[b, k].sum() + y.sum() + 1))) / 4
    assert float(parts["ce"]) == pytest.approx(ce, rel=1e-5)
    assert float(parts["dice"]) == pytest.approx(dice, rel=1e-5)
