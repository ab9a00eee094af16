"""Reliability by hand, against MONAI's calibration error, and on a model that is right by construction."""

from __future__ import annotations

import math

import monai.metrics
import pytest
import torch

from laworder.errors import UserError
from laworder.metrics.calibration import calibration_error, reliability


def test_by_hand() -> None:
    probability = torch.tensor([[0.05, 0.15, 0.19], [0.95, 1.0, 0.95]], dtype=torch.float64)
    true = torch.tensor([[False, False, True], [True, True, False]])
    bins = reliability(probability, true)
    assert [(b.low, b.high, b.pixels) for b in bins] == [(0.0, 0.1, 1), (0.1, 0.2, 2), (0.9, 1.0, 3)]
    assert [b.lesion for b in bins] == pytest.approx([0, 1 / 2, 2 / 3])
    assert [b.probability for b in bins] == pytest.approx([0.05, 0.17, 2.9 / 3])
    expected = (1 * 0.05 + 2 * 0.33 + 3 * abs(2 / 3 - 2.9 / 3)) / 6
    assert calibration_error(bins) == pytest.approx(expected)
    assert calibration_error(bins, least=0.5) == pytest.approx(abs(2 / 3 - 2.9 / 3))
    assert math.isnan(calibration_error(bins, least=0.99))


def test_agrees_with_monai() -> None:
    generator = torch.Generator().manual_seed(4)
    p, t = torch.rand(1, 1, 40, 40, generator=generator), torch.rand(1, 1, 40, 40, generator=generator) > 0.6
    theirs = monai.metrics.CalibrationErrorMetric(num_bins=15, include_background=True)(p, t.float()).item()
    assert calibration_error(reliability(p, t, bins=15)) == pytest.approx(theirs, abs=1e-6)


def test_a_calibrated_model_has_no_error() -> None:
    generator = torch.Generator().manual_seed(5)
    p = torch.rand(400_000, generator=generator)
    t = torch.rand(400_000, generator=generator) < p
    assert calibration_error(reliability(p, t)) < 0.01
    assert calibration_error(reliability((p * 0.5), t)) > 0.2


@pytest.mark.untyped
def test_bad_probabilities_are_refused() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        reliability(torch.tensor([1.5]), torch.tensor([True]))
    with pytest.raises(UserError, match="differ in shape"):
        reliability(torch.rand(2), torch.tensor([True]))
    with pytest.raises(UserError, match="at least 1"):
        reliability(torch.rand(1), torch.tensor([True]), bins=0)
