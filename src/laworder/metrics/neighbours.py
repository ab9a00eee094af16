r"""Precision, recall, density and coverage of generated features (Kynkäänniemi et al. 2019, Naeem et al. 2020).

With r_k(x) the distance of x to its k-th nearest neighbour in its own set, itself not counted:

    precision  share of generated y within r_k(x) of some real x: are they like real ones?
    recall     share of real x within r_k(y) of some generated y: are all kinds made?
    density    mean over generated y of (real x with |x − y| ≤ r_k(x)) / k: precision that outliers do not raise
    coverage   share of real x with some generated y within r_k(x): recall that outliers do not raise
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from laworder.errors import UserError

NEAREST = 5
_ROWS = 1024


@dataclass(frozen=True)
class Neighbours:
    """The four shares (density may pass 1)."""

    precision: float
    recall: float
    density: float
    coverage: float


def neighbours(
    real: Float32[np.ndarray, "n d"], generated: Float32[np.ndarray, "m d"], *, k: int = NEAREST
) -> Neighbours:
    """All four, in blocks: memory grows with one side only."""
    if min(len(real), len(generated)) <= k:
        raise UserError(f"{k} neighbours need at least {k + 1} images a side, not {len(real)} and {len(generated)}")
    x, y = (torch.from_numpy(np.array(side)) for side in (real, generated))
    reach_x, reach_y = radii(x, k), radii(y, k)
    inside = torch.zeros(len(y))
    covered, recalled = torch.zeros(len(x), dtype=torch.bool), torch.zeros(len(x), dtype=torch.bool)
    for start in range(0, len(x), _ROWS):
        rows = slice(start, start + _ROWS)
        apart = _apart(x[rows], y)
        within = apart <= reach_x[rows, None]
        inside += within.sum(0)
        covered[rows] = within.any(1)
        recalled[rows] = (apart <= reach_y).any(1)
    return Neighbours(
        precision=float((inside > 0).float().mean()),
        recall=float(recalled.float().mean()),
        density=float(inside.mean()) / k,
        coverage=float(covered.float().mean()),
    )


def radii(x: Float[Tensor, "n d"], k: int) -> Float[Tensor, " n"]:
    """Distance of each to its k-th nearest other."""
    found: list[Tensor] = []
    for start in range(0, len(x), _ROWS):
        apart = _apart(x[start : start + _ROWS], x)
        apart[torch.arange(len(apart)), torch.arange(start, start + len(apart))] = torch.inf
        found.append(apart.kthvalue(k, dim=1).values)
    return torch.cat(found)


def _apart(a: Tensor, b: Tensor) -> Float[Tensor, "n m"]:
    return torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist")
