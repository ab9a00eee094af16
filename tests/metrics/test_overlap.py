"""Overlap against MONAI, hand tables for empty and full masks, and the three conventions."""

from __future__ import annotations

import monai.metrics
import pytest
import torch

from laworder.errors import UserError
from laworder.metrics.overlap import bootstrap_interval, by_lesion_size, count, curve_dice, dice


def masks(*rows: str) -> torch.Tensor:
    return torch.tensor([[int(c) for c in row] for row in rows], dtype=torch.bool)


@pytest.mark.parametrize(
    ("predicted", "true", "values"),
    [
        ("0000", "0000", (1, 1, 1, 1)),
        ("1111", "1111", (1, 1, 1, 1)),
        ("1111", "0000", (0, 0, 0, 0)),
        ("0000", "0011", (0, 0, 0, 0)),
        ("0110", "0011", (0.5, 1 / 3, 0.5, 0.5)),
        ("0111", "0011", (0.8, 2 / 3, 2 / 3, 1)),
    ],
)
def test_hand_table(predicted: str, true: str, values: tuple[float, ...]) -> None:
    c = count(masks(predicted), masks(true))
    found = [float(v) for v in (c.dice(), c.iou(), c.precision(), c.recall())]
    assert found == pytest.approx(values, abs=1e-12)


def test_agrees_with_monai() -> None:
    generator = torch.Generator().manual_seed(3)
    p = torch.rand(16, 1, 33, 21, generator=generator) > 0.6
    t = torch.rand(16, 1, 33, 21, generator=generator) > 0.7
    ours = count(p, t)
    theirs_dice = monai.metrics.DiceMetric(reduction="none")(p.float(), t.float())[:, 0]
    theirs_iou = monai.metrics.MeanIoU(reduction="none")(p.float(), t.float())[:, 0]
    torch.testing.assert_close(ours.dice().float(), theirs_dice, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.iou().float(), theirs_iou, atol=1e-6, rtol=0)
    table = monai.metrics.get_confusion_matrix(p.float(), t.float())
    for name, values in (("precision", ours.precision()), ("recall", ours.recall())):
        theirs = monai.metrics.compute_confusion_matrix_metric(name, table)[:, 0]
        torch.testing.assert_close(values.float(), theirs, atol=1e-6, rtol=0)


def test_conventions_differ_as_documented() -> None:
    probability = torch.tensor([[0.9, 0.8, 0.1, 0.1], [0.2, 0.4, 0.1, 0.1]])
    true = masks("1100", "0100")
    assert dice(probability, true) == pytest.approx(0.5)  # 1 for the first image, 0 for the second
    assert dice(probability, true, convention="pooled") == pytest.approx(2 * 2 / (2 + 3))
    # The second image stretched to [0, 1] is found at many thresholds.
    assert dice(probability, true, convention="curve") > 0.85
    with pytest.raises(UserError, match="did you mean 'pooled'"):
        dice(probability, true, convention="poold")


def test_curve_is_the_mean_over_256_thresholds() -> None:
    probability = torch.rand(3, 50, generator=torch.Generator().manual_seed(1))
    true = probability > 0.4
    total = 0.0
    for p, t in zip(probability.tolist(), true.tolist(), strict=True):
        low, high = min(p), max(p)
        for k in range(256):
            hit = [(v - low) / (high - low) >= k / 255 for v in p]
            area = sum(hit) + sum(t)
            total += (2 * sum(h and y for h, y in zip(hit, t, strict=True)) / area if area else 1.0) / (3 * 256)
    assert curve_dice(probability, true) == pytest.approx(total, abs=1e-4)


def test_a_flat_map_has_a_curve() -> None:
    assert curve_dice(torch.full((1, 4), 0.3), masks("0000")) == pytest.approx(1 - 77 / 256)


def test_size_bins_leave_out_what_is_empty() -> None:
    score = torch.tensor([0.2, 0.4, 0.9, 1.0])
    fraction = torch.tensor([0.004, 0.005, 0.3, 0.0])
    bins = by_lesion_size(score, fraction)
    assert [(b.low, b.high, b.images) for b in bins] == [(0.0, 0.005, 2), (0.2, 1.0, 1)]
    assert bins[0].mean == pytest.approx(0.3)


def test_bootstrap_interval_covers_the_mean() -> None:
    score = torch.rand(200, generator=torch.Generator().manual_seed(2))
    low, high = bootstrap_interval(score)
    standard_error = float(score.std()) / 200**0.5
    assert low < float(score.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 * standard_error, rel=0.1)
    with pytest.raises(UserError, match="at least 2 images"):
        bootstrap_interval(score[:1])


@pytest.mark.untyped
def test_bad_masks_are_refused() -> None:
    with pytest.raises(UserError, match="must be boolean"):
        count(torch.rand(1, 4), torch.rand(1, 4))
    with pytest.raises(UserError, match="differ in shape"):
        count(masks("01"), masks("011"))
