r"""Distances between two sets of embeddings: Fréchet's (FID) and the kernel's (KID), with their intervals.

Of features x with mean μ and covariance Σ (Heusel et al. 2017):

    FID = |μ₁ − μ₂|² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁Σ₂)^½

The root's trace is the sum of √ of the eigenvalues of Σ₁Σ₂, so no root is taken. With centred features X (n×d) and
Σ = XᵀX / (n − 1), these eigenvalues are those of (X₁X₂ᵀ)(X₁X₂ᵀ)ᵀ, so the sum is that of the singular values of X₁X₂ᵀ
over √((n₁ − 1)(n₂ − 1)): with fewer images than features, a smaller and better conditioned matrix than Σ₁Σ₂.

KID (Bińkowski et al. 2018) is the unbiased squared MMD under k(x, y) = (xᵀy / d + 1)³, over all images at once.

Intervals are bootstraps over the images of both sides. A resampled set has only 63 % of its images distinct, which
raises FID; so the spread of the draws is laid around the value found, not around their own mean. Sets of more than
`MOST` images are subsampled for it, and the spread, which falls off with √n, is scaled. A draw changes how often an
image counts and no product of two images' features; so these products are computed once for all draws.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch.linalg is typed in part only)

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, Shaped
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


@dataclass(frozen=True)
class Part:
    """Some rows of features, read when they are asked for: a memory-mapped array never lies in memory whole."""

    features: Features
    rows: Int64[np.ndarray, " m"]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.features.shape[1]

    def __getitem__(self, rows: slice) -> Features:
        return self.features[self.rows[rows]]


def blocks(features: Features | Part, size: int = _ROWS) -> Iterator[Float[Tensor, "b d"]]:
    """The rows in float64, a block at a time: a memory-mapped array never lies in memory whole."""
    for start in range(0, len(features), size):
        yield torch.from_numpy(np.array(features[start : start + size], dtype=np.float64))


def moments(features: Features | Part) -> Moments:
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


def frechet_of(first: Features | Part, second: Features | Part) -> float:
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


def kid(first: Features | Part, second: Features | Part) -> float:
    """The unbiased squared MMD over all images, in blocks."""
    _check(first, second)
    within = [_kernel_sum(side, side, diagonal=False) / (len(side) * (len(side) - 1)) for side in (first, second)]
    return sum(within) - 2 * _kernel_sum(first, second, diagonal=True) / (len(first) * len(second))


def _kernel_sum(a: Features | Part, b: Features | Part, *, diagonal: bool) -> float:
    total = 0.0
    for left in blocks(a):
        for right in blocks(b):
            total += float(kernel(left @ right.T, a.shape[1]).sum())
        if not diagonal:
            total -= float(kernel(left.square().sum(1), a.shape[1]).sum())
    return total


def _check(first: Features | Part, second: Features | Part) -> None:
    if min(len(first), len(second)) < 2:
        raise UserError(f"FID and KID need at least 2 images a side, not {len(first)} and {len(second)}")
    if first.shape[1] != second.shape[1]:
        raise UserError(f"features of {first.shape[1]} and of {second.shape[1]} numbers are of different networks")


def estimates(first: Features, second: Features, *, resamples: int = 100, seed: int = 0) -> tuple[Estimate, Estimate]:
    """FID and KID with their intervals."""
    fid, mmd = frechet_of(first, second), kid(first, second)
    generator = torch.Generator().manual_seed(seed)
    a, b = (_some(side, generator) for side in (first, second))
    # The spread of the larger side is the smaller part of it, so the smaller side's share is what counts.
    scale = math.sqrt(min(len(a), len(b)) / min(len(first), len(second)))
    products = _Products(a, b)
    draws = [products.drawn(*(_times(len(side), generator) for side in (a, b))) for _ in range(resamples)]
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
    """All rows, or `MOST` random ones: an interval needs no more."""
    if len(features) > MOST:
        features = features[torch.randperm(len(features), generator=generator)[:MOST].sort().values.numpy()]
    return torch.from_numpy(np.array(features, dtype=np.float64))


def _times(n: int, generator: torch.Generator) -> Float[Tensor, " n"]:
    """How often each of n images comes in n draws with replacement."""
    return torch.bincount(torch.randint(n, (n,), generator=generator), minlength=n).double()


class _Products:
    """Two sets of features and the products of all their pairs, of which draws take what they need."""

    def __init__(self, a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> None:
        self.a, self.b, width = a, b, a.shape[1]
        self.between = a @ b.T
        self.squares = a.square().sum(1), b.square().sum(1)
        self.kernels = kernel(a @ a.T, width), kernel(b @ b.T, width), kernel(self.between, width)

    def drawn(self, w: Float[Tensor, " n"], v: Float[Tensor, " m"]) -> tuple[float, float]:
        """FID and KID of the draw in which each image occurs so often."""
        p, q = w / w.sum(), v / v.sum()
        within = [_without_self(k, times) for k, times in zip(self.kernels, (w, v), strict=False)]
        mmd = sum(within) - 2 * float(p @ self.kernels[2] @ q)
        narrow = max(int((w > 0).sum()), int((v > 0).sum())) > self.a.shape[1]
        return (frechet(_weighted(self.a, w), _weighted(self.b, v)) if narrow else self._frechet(w, v)), mmd

    def _frechet(self, w: Float[Tensor, " n"], v: Float[Tensor, " m"]) -> float:
        """From products alone: (x − μ)ᵀ(y − ν) = xᵀy − xᵀν − μᵀy + μᵀν."""
        n, m = float(w.sum()), float(v.sum())
        mean_a, mean_b = w @ self.a / n, v @ self.b / m
        rows, columns = w > 0, v > 0
        cross = self.between[rows][:, columns]
        cross -= (self.a @ mean_b)[rows, None]
        cross -= (self.b @ mean_a)[columns] - mean_a @ mean_b
        cross *= (w[rows] / (n - 1)).sqrt()[:, None] * (v[columns] / (m - 1)).sqrt()
        gram = cross @ cross.T if len(cross) <= cross.shape[1] else cross.T @ cross
        root = float(torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().sum())
        traces = [
            float(times @ squares - count * mean.square().sum()) / (count - 1)
            for times, squares, mean, count in zip((w, v), self.squares, (mean_a, mean_b), (n, m), strict=True)
        ]
        return _fid(mean_a, mean_b, sum(traces), root)


def _without_self(values: Float[Tensor, "n n"], times: Float[Tensor, " n"]) -> float:
    """Mean kernel over pairs of different images; an image drawn twice makes no pair with itself."""
    squares = times.square()
    return float((times @ values @ times - squares @ values.diagonal()) / (times.sum().square() - squares.sum()))


def _weighted(x: Float[Tensor, "n d"], times: Float[Tensor, " n"]) -> Moments:
    """Moments of a draw."""
    count = int(times.sum())
    mean = times @ x / count
    centred = (x - mean) * times.sqrt()[:, None]
    return Moments(count, mean, centred.T @ centred / (count - 1))


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
        a, b = (Part(features, np.sort(part)) for part in (order[:half], order[half : 2 * half]))
        found.append((frechet_of(a, b), kid(a, b)))
    return Floor(*(sum(pair[k] for pair in found) / cuts for k in (0, 1)), images=half, cuts=cuts)
