"""Effect sizes and their intervals against SciPy's noncentral t, and the bootstrap over seeds and images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from laworder.errors import UserError
from laworder.metrics.effect import (
    crossed_interval,
    effect,
    noncentral_t_cdf,
    noncentrality_interval,
    small_sample_factor,
)


@pytest.mark.parametrize("freedom", [1, 2, 4, 30, 500])
@pytest.mark.parametrize("noncentrality", [0.0, -1.5, 6.0])
def test_the_noncentral_t_is_scipys(freedom: int, noncentrality: float) -> None:
    for t in (-2.0, 0.3, 5.0):
        expected = stats.nct.cdf(t, freedom, noncentrality) if noncentrality else stats.t.cdf(t, freedom)
        assert noncentral_t_cdf(t, freedom, noncentrality) == pytest.approx(float(expected), abs=1e-7)


def test_an_effect_is_that_of_the_textbooks() -> None:
    d = torch.tensor([2.1, 1.0, 3.2, 0.4, 1.7])
    found = effect(d)
    test = stats.ttest_1samp(d.double().numpy(), 0)
    assert found.t_test_p == pytest.approx(float(test.pvalue), rel=1e-6)
    assert found.cohens_dz == pytest.approx(float(d.mean() / d.std()))
    # Hedges (1981): J(4) = 0.7979.
    assert small_sample_factor(4) == pytest.approx(0.79788, abs=1e-5)
    assert found.hedges_g == pytest.approx(0.79788 * found.cohens_dz, abs=1e-4)
    low, high = (end / found.hedges_g * found.cohens_dz * math.sqrt(5) for end in found.interval_95)
    t = found.cohens_dz * math.sqrt(5)
    assert stats.nct.cdf(t, 4, low) == pytest.approx(0.975, abs=1e-6)
    assert stats.nct.cdf(t, 4, high) == pytest.approx(0.025, abs=1e-6)
    assert low < t < high


def test_the_interval_covers_the_true_effect() -> None:
    """Of 60 samples of 5 with a true effect of 0.8, about 95 in 100 intervals of d_z hold it."""
    draws = np.random.default_rng(3).normal(0.8, 1.0, (60, 5))
    t = draws.mean(1) / draws.std(1, ddof=1) * math.sqrt(5)
    intervals = [noncentrality_interval(float(value), 4) for value in t]
    covered = sum(low <= 0.8 * math.sqrt(5) <= high for low, high in intervals)
    assert 54 <= covered <= 60


def test_what_has_no_spread_has_no_effect_size() -> None:
    same = effect(torch.full((4,), 0.3))
    assert math.isnan(same.cohens_dz)
    assert same.difference == pytest.approx(0.3)
    assert effect(torch.zeros(4)).t_test_p == 1.0
    assert math.isnan(effect(torch.tensor([0.1, 0.2])).hedges_g)
    with pytest.raises(UserError, match="at least 2 paired differences, not 1"):
        effect(torch.zeros(1))
    with pytest.raises(UserError, match="must be finite"):
        effect(torch.tensor([0.0, math.nan, 1.0]))


def test_the_crossed_interval_sees_the_spread_of_seeds_that_images_hide() -> None:
    draw = torch.Generator().manual_seed(0)
    noise = 0.01 * torch.randn(5, 400, generator=draw)
    between = noise + torch.tensor([-0.2, -0.1, 0.0, 0.1, 0.2])[:, None]
    low, high = crossed_interval(between)
    assert low < -0.05
    assert high > 0.05
    low, high = crossed_interval(noise + 0.1)
    assert 0.09 < low < high < 0.11


def test_images_that_a_seed_did_not_score_are_left_out() -> None:
    d = torch.full((3, 30), math.nan)
    for s in range(3):
        d[s, 10 * s : 10 * s + 10] = 0.5
    assert crossed_interval(d) == (0.5, 0.5)
    with pytest.raises(UserError, match="at least 2 images"):
        crossed_interval(torch.zeros(3, 1))
