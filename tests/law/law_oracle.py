"""Section 3.1.2 again, in plain Python loops over float64 lists: what the tensors are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence

Grid = list[float]
"""One sample's map, flattened."""


def ratio_prior(m: Grid) -> Grid:
    """Eq. 3."""
    r = sum(m) / len(m)
    return [x * (1 - r) + (1 - x) * r for x in m]


def delta(logits: Grid, tau: float) -> Grid:
    """Eq. 4 after φ."""
    return [1 / (1 + math.exp(-x / tau)) for x in logits]


def law_weights(
    m: Grid, d: Grid, *, gamma: float = 0.2, w_min: float | None = 1e-3, w_max: float | None = 2.0, norm: bool = True
) -> Grid:
    """Eqs. 5 to 7 for one sample."""
    adapted = [w * (1 + gamma * (2 * x - 1)) for w, x in zip(ratio_prior(m), d, strict=True)]
    if norm:
        mean = sum(adapted) / len(adapted)
        adapted = [w / mean for w in adapted]
    if w_min is not None:
        adapted = [max(w, w_min) for w in adapted]
    if w_max is not None:
        adapted = [min(w, w_max) for w in adapted]
    return adapted


def weighted_error(w: Grid, pred: Sequence[Grid], target: Sequence[Grid]) -> float:
    """Eq. 8 for one sample: channels × pixels, w broadcast over channels."""
    total = 0.0
    for p, t in zip(pred, target, strict=True):
        for i, weight in enumerate(w):
            total += weight * (p[i] - t[i]) ** 2
    return total / (len(pred) * len(w))


def dice(d: Grid, m: Grid, smooth: float = 1e-6) -> float:
    """Eq. 9 for one sample."""
    overlap = sum(x * y for x, y in zip(d, m, strict=True))
    return 1 - (2 * overlap + smooth) / (sum(d) + sum(m) + smooth)
