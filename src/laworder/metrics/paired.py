r"""Is model A better than model B on the same images? Interval, tests and size of the paired difference d = a − b.

- interval of mean(d): percentile bootstrap over images;
- sign-flip permutation test of mean(d) = 0: under the null hypothesis each dᵢ has either sign alike; all 2ⁿ sign
  patterns up to n = 14, else random ones with the observed one counted in, so that p is never 0;
- Wilcoxon's signed-rank test on d ≠ 0: W₊ = Σ rank(|dᵢ|) over dᵢ > 0, ties share their mean rank. Exact up to n = 50
  without ties, else the normal approximation with the correction for ties and none for continuity;
- effect sizes: Cohen's d_z = mean(d) / sd(d), and the matched-pairs rank-biserial correlation
  r = (W₊ − W₋) / (W₊ + W₋), which is 1 where a is better on every image.

All tests are two-sided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from laworder.errors import UserError
from laworder.metrics.overlap import bootstrap_interval

EXACT_FLIPS = 14
EXACT_RANKS = 50


@dataclass(frozen=True)
class Paired:
    """The comparison of two models' per-image scores, `first` minus `second`."""

    images: int
    first: float
    second: float
    difference: float
    interval_95: tuple[float, float]
    wins: int
    losses: int
    ties: int
    permutation_p: float
    wilcoxon_p: float
    cohens_dz: float
    rank_biserial: float


def compare(
    first: Shaped[Tensor, " n"], second: Shaped[Tensor, " n"], *, resamples: int = 10_000, seed: int = 0
) -> Paired:
    """Compare two scores of the same images in the same order. NaN where a number has no meaning (no difference)."""
    if first.shape != second.shape or first.ndim != 1:
        raise UserError(
            f"paired scores must be two lists of one length, not {tuple(first.shape)}, {tuple(second.shape)}"
        )
    if len(first) < 2:
        raise UserError(f"a paired comparison needs at least 2 images, not {len(first)}")
    a, b = first.cpu().double(), second.cpu().double()
    if not bool((a.isfinite() & b.isfinite()).all()):
        raise UserError("paired scores must be finite: leave out the images where either has no value")
    d = a - b
    spread = float(d.std())
    up, down = signed_ranks(d)
    return Paired(
        images=len(d),
        first=float(a.mean()),
        second=float(b.mean()),
        difference=float(d.mean()),
        interval_95=bootstrap_interval(d, seed=seed),
        wins=int((d > 0).sum()),
        losses=int((d < 0).sum()),
        ties=int((d == 0).sum()),
        permutation_p=permutation_test(d, resamples=resamples, seed=seed),
        wilcoxon_p=wilcoxon_test(d),
        cohens_dz=float(d.mean()) / spread if spread > 0 else math.nan,
        rank_biserial=(up - down) / (up + down) if up + down > 0 else math.nan,
    )


def permutation_test(difference: Shaped[Tensor, " n"], *, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p of mean(d) = 0 by flipping signs."""
    d = difference.cpu().double()
    n = len(d)
    observed = abs(float(d.sum()))
    reach = observed - 1e-12 * max(1.0, float(d.abs().sum()))
    if n <= EXACT_FLIPS:
        bits = torch.arange(2**n)[:, None] >> torch.arange(n) & 1
        return float(((1.0 - 2.0 * bits.double()) @ d).abs().ge(reach).double().mean())
    generator = torch.Generator().manual_seed(seed)
    extreme, done = 0, 0
    while done < resamples:
        rows = min(1000, resamples - done)
        signs = torch.randint(0, 2, (rows, n), generator=generator).double() * 2 - 1
        extreme += int((signs @ d).abs().ge(reach).sum())
        done += rows
    return (extreme + 1) / (resamples + 1)


def _ranks(values: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Ranks from 1, ties sharing their mean; and with how many (itself included) each value shares its own."""
    ordered = values.sort().values
    below = torch.searchsorted(ordered, values)
    up_to = torch.searchsorted(ordered, values, right=True)
    return (below + up_to + 1).double() / 2, (up_to - below).double()


def signed_ranks(difference: Shaped[Tensor, " n"]) -> tuple[float, float]:
    """W₊ and W₋: the rank sums of the positive and of the negative differences; zeros are left out."""
    d = difference.cpu().double()
    d = d[d != 0]
    if len(d) == 0:
        return 0.0, 0.0
    ranks, _ = _ranks(d.abs())
    return float(ranks[d > 0].sum()), float(ranks[d < 0].sum())


def wilcoxon_test(difference: Shaped[Tensor, " n"]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; 1 where no image differs."""
    d = difference.cpu().double()
    d = d[d != 0]
    n = len(d)
    if n == 0:
        return 1.0
    up, down = signed_ranks(d)
    _, shared = _ranks(d.abs())
    if n <= EXACT_RANKS and bool((shared == 1).all()):
        return min(1.0, 2 * _rank_sum_cdf(n, round(min(up, down))))
    # Σ (c³ − c) over groups of c ties is Σ (c² − 1) over the values in them.
    variance = n * (n + 1) * (2 * n + 1) / 24 - float((shared**2 - 1).sum()) / 48
    return math.erfc(abs(up - n * (n + 1) / 4) / math.sqrt(2 * variance))


def _rank_sum_cdf(n: int, value: int) -> float:
    """P(W ≤ value) where each of the ranks 1…n is in the sum with probability ½: counted exactly."""
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return sum(ways[: value + 1]) / 2**n
