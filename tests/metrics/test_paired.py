"""Paired tests against SciPy, by hand, and by their error rates."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch

from laworder.errors import UserError
from laworder.metrics.paired import compare, permutation_test, wilcoxon_test


def draw(n: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


@pytest.mark.parametrize("n", [3, 8, 20, 49, 50])
@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_exact_wilcoxon_is_scipys(n: int, shift: float) -> None:
    d = draw(n, n, shift)
    expected = scipy.stats.wilcoxon(d.numpy(), method="exact").pvalue
    assert wilcoxon_test(d) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [51, 200])
def test_wilcoxon_with_many_images_is_scipys(n: int) -> None:
    d = draw(n, n, 0.1)
    expected = scipy.stats.wilcoxon(d.numpy(), method="asymptotic").pvalue
    assert wilcoxon_test(d) == pytest.approx(expected, abs=1e-12)


def test_wilcoxon_with_ties_and_zeros_is_scipys() -> None:
    d = (draw(60, 3, 0.3) * 2).round() / 2
    assert (d == 0).any()
    expected = scipy.stats.wilcoxon(d.numpy(), method="asymptotic").pvalue
    assert wilcoxon_test(d) == pytest.approx(expected, abs=1e-12)
    assert wilcoxon_test(torch.zeros(5)) == 1


@pytest.mark.parametrize("n", [2, 7, 14])
def test_exact_permutation_is_scipys(n: int) -> None:
    d = draw(n, n, 0.5)
    theirs = scipy.stats.permutation_test(
        (d.numpy(),), lambda x: x.mean(), permutation_type="samples", n_resamples=2**14, vectorized=False
    )
    assert permutation_test(d) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_random_permutation_is_near_the_t_test_and_never_zero() -> None:
    d = draw(100, 1, 0.2)
    assert permutation_test(d) == pytest.approx(scipy.stats.ttest_1samp(d.numpy(), 0).pvalue, abs=0.01)
    assert permutation_test(draw(100, 1, 5.0), resamples=999) == 1 / 1000
    assert permutation_test(d, seed=1) != permutation_test(d, seed=2)


def test_the_tests_hold_their_level() -> None:
    p = torch.tensor(
        [[permutation_test(d, resamples=400), wilcoxon_test(d)] for d in (draw(40, s) for s in range(200))]
    )
    assert ((p < 0.05).double().mean(0) < 0.09).all()


def test_by_hand() -> None:
    a, b = torch.tensor([0.5, 0.9, 0.7, 0.6]), torch.tensor([0.5, 0.8, 0.9, 0.3])
    found = compare(a, b)
    assert (found.images, found.wins, found.losses, found.ties) == (4, 2, 1, 1)
    assert found.difference == pytest.approx(0.05)
    assert found.first - found.second == pytest.approx(0.05)
    # |d| = 0.1, 0.2, 0.3 have ranks 1, 2, 3: W+ = 1 + 3, W− = 2.
    assert found.rank_biserial == pytest.approx((4 - 2) / 6)
    deviations = [0.0 - 0.05, 0.1 - 0.05, -0.2 - 0.05, 0.3 - 0.05]
    assert found.cohens_dz == pytest.approx(0.05 / math.sqrt(sum(x * x for x in deviations) / 3), abs=1e-5)
    assert found.interval_95[0] < 0.05 < found.interval_95[1]


def test_the_same_model_twice_has_no_difference() -> None:
    a = torch.rand(30)
    found = compare(a, a)
    assert (found.difference, found.permutation_p, found.wilcoxon_p, found.ties) == (0, 1, 1, 30)
    assert math.isnan(found.cohens_dz)
    assert math.isnan(found.rank_biserial)


def test_swapping_the_models_turns_the_signs() -> None:
    a, b = draw(25, 1), draw(25, 2)
    one, two = compare(a, b), compare(b, a)
    assert one.difference == pytest.approx(-two.difference)
    assert one.rank_biserial == pytest.approx(-two.rank_biserial)
    assert one.wilcoxon_p == pytest.approx(two.wilcoxon_p)


@pytest.mark.untyped
def test_bad_scores_are_refused() -> None:
    with pytest.raises(UserError, match="one length"):
        compare(torch.rand(3), torch.rand(4))
    with pytest.raises(UserError, match="at least 2 images"):
        compare(torch.rand(1), torch.rand(1))
    with pytest.raises(UserError, match="must be finite"):
        compare(torch.tensor([1.0, math.inf]), torch.rand(2))
