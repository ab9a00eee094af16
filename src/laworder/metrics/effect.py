r"""How large is a paired effect, and how sure: for a study of several seeds on the same images.

A study gives d[s, i], the difference that a change makes under seed s on image i; NaN where image i was not scored
under seed s. Two questions are mixed in it: would other images show it, and would other trainings show it?

- over images: the mean over seeds of each image, compared with `metrics.paired.compare`;
- over seeds: the mean over images of each seed, with `effect` below: few numbers, but the honest unit of training;
- both at once: a bootstrap that draws seeds and images together (the pigeonhole bootstrap of Owen 2007).

Of n paired differences with mean m and standard deviation s, Cohen's d_z = m / s, and Hedges' g = J d_z with
J = Γ(ν/2) / (√(ν/2) Γ((ν−1)/2)), ν = n − 1, which takes out the bias of small n. The interval of d_z is exact for
normal differences: t = d_z √n follows a noncentral t distribution, so its ends are the noncentralities under which t is
the 97.5th and the 2.5th percentile, over √n; it is scaled by J for g.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch.special is not typed)

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from laworder.errors import UserError

_POINTS = 2001  # of the integral over the sample's spread; odd, for Simpson's rule


@dataclass(frozen=True)
class Effect:
    """n paired differences: their mean and spread, the effect in units of the spread, and Student's test of mean 0.

    interval_95: of Hedges' g
    """

    n: int
    difference: float
    spread: float
    cohens_dz: float
    hedges_g: float
    interval_95: tuple[float, float]
    t_test_p: float


def effect(differences: Shaped[Tensor, " n"]) -> Effect:
    """The effect in a list of paired differences. NaN where a number has no meaning (no spread, fewer than 3)."""
    d = differences.cpu().double()
    n = len(d)
    if n < 2:
        raise UserError(f"an effect size needs at least 2 paired differences, not {n}")
    if not bool(d.isfinite().all()):
        raise UserError("paired differences must be finite: leave out those without a value")
    mean, spread = float(d.mean()), float(d.std())
    # Differences that are equal but for rounding have no spread to be measured in.
    if spread <= 1e-12 * max(1e-12, abs(mean)):
        return Effect(n, mean, 0.0, math.nan, math.nan, (math.nan, math.nan), 1.0 if mean == 0 else math.nan)
    dz, freedom = mean / spread, n - 1
    t, scale = dz * math.sqrt(n), small_sample_factor(freedom)
    low, high = noncentrality_interval(t, freedom)
    ends = (scale * low / math.sqrt(n), scale * high / math.sqrt(n))
    return Effect(n, mean, spread, dz, scale * dz, ends, 2 * noncentral_t_cdf(-abs(t), freedom, 0.0))


def small_sample_factor(freedom: int) -> float:
    """J: the expectation of d_z is J⁻¹ times the true effect; NaN for one degree of freedom, where it is infinite."""
    if freedom < 2:
        return math.nan
    half = freedom / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def noncentral_t_cdf(t: float, freedom: int, noncentrality: float) -> float:
    """P(T ≤ t) = ∫ Φ(t s − δ) p(s) ds, where s = χ_ν / √ν is the sample's spread over the true one."""
    top = 1 + 10 / math.sqrt(freedom)
    s = torch.linspace(0, top, _POINTS, dtype=torch.float64)
    half = freedom / 2
    constant = math.log(2) + half * math.log(half) - math.lgamma(half)
    log_p = constant + torch.xlogy(torch.full_like(s, freedom - 1), s) - half * s * s
    below = torch.special.erfc((noncentrality - t * s) / math.sqrt(2)) / 2
    weights = torch.full((_POINTS,), 2.0, dtype=torch.float64)
    weights[1::2] = 4.0
    weights[0] = weights[-1] = 1.0
    return float((below * log_p.exp() * weights).sum()) * top / (_POINTS - 1) / 3


def noncentrality_interval(t: float, freedom: int, *, level: float = 0.95) -> tuple[float, float]:
    """The noncentralities under which t is as extreme as the level allows."""
    tail = (1 - level) / 2
    return _solve(t, freedom, 1 - tail), _solve(t, freedom, tail)


def _solve(t: float, freedom: int, target: float) -> float:
    """δ with P(T ≤ t) = target; the probability falls as δ rises."""
    reach = 10 + 10 * abs(t)
    low, high = t - reach, t + reach
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if noncentral_t_cdf(t, freedom, middle) > target else (low, middle)
    return (low + high) / 2


def crossed_interval(
    differences: Float[Tensor, "s n"], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean difference over draws of seeds and of images, both with replacement.

    With one seed only images are drawn. Draws in which nothing was scored are left out.
    """
    d = differences.cpu().double()
    seeds, images = d.shape
    if images < 2:
        raise UserError(f"a bootstrap interval needs at least 2 images, not {images}")
    known = d.isfinite()
    generator = torch.Generator().manual_seed(seed)
    over_seeds, over_images = (_multiplicities(resamples, k, generator) for k in (seeds, images))
    sums = torch.einsum("rs,sn,rn->r", over_seeds, torch.where(known, d, torch.zeros_like(d)), over_images)
    counts = torch.einsum("rs,sn,rn->r", over_seeds, known.double(), over_images)
    means = sums[counts > 0] / counts[counts > 0]
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64))
    return float(low), float(high)


def _multiplicities(rows: int, n: int, generator: torch.Generator) -> Float[Tensor, "rows n"]:
    """How often each of n things is drawn in each of `rows` draws of n with replacement."""
    picks = torch.randint(n, (rows, n), generator=generator)
    return torch.zeros(rows, n, dtype=torch.float64).scatter_add_(1, picks, torch.ones(rows, n, dtype=torch.float64))
