r"""Distances between two sets of embeddings: Fréchet's (FID) and the kernel's (KID), with their intervals.

Of features x with mean μ and covariance Σ (Heusel et al. 2017):

    FID = |μ₁ − μ₂|² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁Σ₂)^½

The root's trace is the sum of √ of the eigenvalues of Σ₁Σ₂, so no root is taken. With centred features X (n×d) and
Σ = XᵀX / (n − 1), these eigenvalues are those of (X₁X₂ᵀ)(X₁X₂ᵀ)ᵀ, so the sum is that of the singular values of X₁X₂ᵀ
over √((n₁ − 1)(n₂ − 1)): with fewer images than features, a smaller and better conditioned matrix than Σ₁Σ₂.

KID (Bińkowski et al. 2018) is the unbiased squared MMD under k(x, y) = (xᵀy / d + 1)³, over all images at once.

Intervals are bootstraps over the images of both sides. A resampled set has only 63 % of its images distinct, which
raises FID; so the spread of the draws is laid around the value found, not around their own mean. Sets of more than
`MOST` images are subsampled for it, and the spread, which falls off with √n, is scaled.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch.linalg is typed in part only)

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor

from laworder.errors import UserError

Features = Float32[np.ndarray, "_n _d"]
MOST = 2500
"""Images a side that an interval is computed from."""
_ROWS = 1024


@dataclass(frozen=True)
class Moments:
    """Mean and covariance (over n − 1) of a set of features, in float64."""

    count: int
    mean: Float[Tensor, " d"]
    covariance: Float[Tensor, "d d"]


@dataclass(frozen=True)
class Estimate:
    """A distance and its 95 % interval."""

    value: float
    interval_95: tuple[float, float]


def blocks(features: Features, size: int = _ROWS) -> Iterator[Float[Tensor, "b d"]]:
    """The rows in float64, a block at a time: a memory-mapped array never lies in memory whole."""
    for start in range(0, len(features), size):
        yield torch.from_numpy(np.array(features[start : start + size], dtype=np.float64))


def moments(features: Features) -> Moments:
    """One pass for the mean, one for the covariance, in constant memory."""
    n = len(features)
    if n < 2:
        raise UserError(f"a covariance needs at least 2 images, not {n}")
    mean = torch.stack([block.sum(0) for block in blocks(features)]).sum(0) / n
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for block in blocks(features):
        centred = block - mean
        covariance.addmm_(centred.T, centred)
    return Moments(n, mean, covariance / (n - 1))


def frechet(first: Moments, second: Moments) -> float:
    """FID of two sets of which only the moments are known."""
    if first.mean.shape != second.mean.shape:
        raise UserError(f"features of {len(first.mean)} and of {len(second.mean)} numbers are of different networks")
    values, vectors = torch.linalg.eigh(first.covariance)
    root = vectors * values.clamp(min=0).sqrt()
    squares = torch.linalg.eigvalsh(root.T @ second.covariance @ root)
    return _fid(first.mean, second.mean, _trace(first) + _trace(second), float(squares.clamp(min=0).sqrt().sum()))


def _trace(one: Moments) -> float:
    return float(one.covariance.diagonal().sum())


def _fid(first: Tensor, second: Tensor, traces: float, root: float) -> float:
    return float((first - second).square().sum()) + traces - 2 * root


def frechet_of(first: Features, second: Features) -> float:
    """FID of two sets of features, by whichever matrix is the smaller one."""
    _check(first, second)
    if max(len(first), len(second)) > first.shape[1]:
        return frechet(moments(first), moments(second))
    a, b = (torch.cat(list(blocks(side))) for side in (first, second))
    return _by_rows(a, b)


def _by_rows(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> float:
    means = a.mean(0), b.mean(0)
    x, y = ((side - mean) / math.sqrt(len(side) - 1) for side, mean in zip((a, b), means, strict=True))
    root = float(torch.linalg.svdvals(x @ y.T).sum())
    return _fid(*means, float(x.square().sum() + y.square().sum()), root)


def kernel(products: Float[Tensor, " *pairs"], width: int) -> Float[Tensor, " *pairs"]:
    """k from scalar products of features of that width."""
    return (products / width + 1) ** 3


def kid(first: Features, second: Features) -> float:
    """The unbiased squared MMD over all images, in blocks."""
    _check(first, second)
    within = [_kernel_sum(side, side, diagonal=False) / (len(side) * (len(side) - 1)) for side in (first, second)]
    return sum(within) - 2 * _kernel_sum(first, second, diagonal=True) / (len(first) * len(second))


def _kernel_sum(a: Features, b: Features, *, diagonal: bool) -> float:
    total = 0.0
    for left in blocks(a):
        for right in blocks(b):
            total += float(kernel(left @ right.T, a.shape[1]).sum())
        if not diagonal:
            total -= float(kernel(left.square().sum(1), a.shape[1]).sum())
    return total


def _check(first: Features, second: Features) -> None:
    if min(len(first), len(second)) < 2:
        raise UserError(f"FID and KID need at least 2 images a side, not {len(first)} and {len(second)}")
    if first.shape[1] != second.shape[1]:
        raise UserError(f"features of {first.shape[1]} and of {second.shape[1]} numbers are of different networks")


def estimates(first: Features, second: Features, *, resamples: int = 100, seed: int = 0) -> tuple[Estimate, Estimate]:
    """FID and KID with their intervals."""
    fid, mmd = frechet_of(first, second), kid(first, second)
    generator = torch.Generator().manual_seed(seed)
    sides = [_some(side, generator) for side in (first, second)]
    # The spread of the larger side is the smaller part of it, so the smaller side's share is what counts.
    scale = math.sqrt(min(len(side) for side in sides) / min(len(first), len(second)))
    draws = [_drawn(sides[0], sides[1], generator) for _ in range(resamples)]
    fids, mmds = (torch.tensor([draw[k] for draw in draws], dtype=torch.float64) for k in (0, 1))
    return Estimate(fid, around(fid, fids, scale, least=0.0)), Estimate(mmd, around(mmd, mmds, scale))


def around(
    value: float, draws: Shaped[Tensor, " r"], scale: float = 1.0, *, least: float = -math.inf
) -> tuple[float, float]:
    """The 95 % spread of draws about their median, laid around the value found."""
    if len(draws) < 2:
        return math.nan, math.nan
    ends = torch.quantile(draws.double() - draws.double().median(), torch.tensor([0.025, 0.975]).double())
    low, high = (max(least, value + scale * float(end)) for end in ends)
    return low, high


def _some(features: Features, generator: torch.Generator) -> Float[Tensor, "n d"]:
    """All rows, or `MOST` random ones, in float32: an interval needs no more."""
    if len(features) > MOST:
        features = features[torch.randperm(len(features), generator=generator)[:MOST].sort().values.numpy()]
    return torch.from_numpy(np.array(features, dtype=np.float32))


def _drawn(a: Tensor, b: Tensor, generator: torch.Generator) -> tuple[float, float]:
    """FID and KID of one draw with replacement from either side: each distinct image with how often it was drawn."""
    sides: list[Tensor] = []
    weights: list[Tensor] = []
    for side in (a, b):
        picks = torch.randint(len(side), (len(side),), generator=generator)
        times = torch.bincount(picks, minlength=len(side)).float()
        sides.append(side[times > 0])
        weights.append(times[times > 0])
    x, y = sides
    w, v = weights
    cross = (kernel(x @ y.T, x.shape[1]).double() * w[:, None].double() * v.double()).sum() / (w.sum() * v.sum())
    mmd = _within(x, w) + _within(y, v) - 2 * float(cross)
    return _weighted_frechet(x, w, y, v), mmd


def _within(x: Tensor, w: Tensor) -> float:
    """Mean kernel over pairs of different images; an image drawn twice makes no pair with itself."""
    values = kernel(x @ x.T, x.shape[1]).double() * w[:, None].double() * w.double()
    return float((values.sum() - values.diagonal().sum()) / (w.sum() ** 2 - (w**2).sum()))


def _weighted_frechet(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> float:
    means, centred = [], []
    for side, times in ((x, w), (y, v)):
        n = float(times.sum())
        mean = (side * times[:, None]).sum(0) / n
        means.append(mean)
        centred.append((side - mean) * (times / max(n - 1, 1)).sqrt()[:, None])
    product = centred[0] @ centred[1].T if max(len(x), len(y)) <= x.shape[1] else None
    if (
        product is None
    ):  # more images than features: √ of the eigenvalues of R Rᵀ, R = X₁ (X₂ᵀX₂)^½, of the features' size
        values, vectors = torch.linalg.eigh(centred[1].T @ centred[1])
        product = centred[0] @ (vectors * values.clamp(min=0).sqrt())
    gram = product @ product.T if product.shape[0] <= product.shape[1] else product.T @ product
    root = float(torch.linalg.eigvalsh(gram.double()).clamp(min=0).sqrt().sum())
    traces = float(centred[0].double().square().sum() + centred[1].double().square().sum())
    return _fid(means[0].double(), means[1].double(), traces, root)


@dataclass(frozen=True)
class Floor:
    """What chance alone gives: FID and KID between random halves of one set, the mean over several cuts."""

    fid: float
    kid: float
    images: int
    cuts: int


def floor(features: Features, *, cuts: int = 3, seed: int = 0) -> Floor | None:
    """None where a half would have fewer than 2 images."""
    half = len(features) // 2
    if half < 2:
        return None
    generator = torch.Generator().manual_seed(seed)
    found: list[tuple[float, float]] = []
    for _ in range(cuts):
        order = torch.randperm(len(features), generator=generator).numpy()
        a, b = (np.array(features[np.sort(part)]) for part in (order[:half], order[half : 2 * half]))
        found.append((frechet_of(a, b), kid(a, b)))
    return Floor(*(sum(pair[k] for pair in found) / cuts for k in (0, 1)), images=half, cuts=cuts)
