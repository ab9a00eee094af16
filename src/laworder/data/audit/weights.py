"""What LAW will do with these masks, before it has learnt anything (δ = ½, so that μ = 1).

For a mask of zeros and ones, eq. 3 and eq. 7 give a lesion pixel 1 / (2r) and a background pixel 1 / (2(1 − r)) before
the clamp, where r is the lesion's share of the latents. So below r = 1 / (2 w_max), a quarter, every lesion pixel sits
at w_max: δ has no say there, and the mean weight is no longer 1. An empty or full mask takes w = 1 everywhere.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from laworder.law.prior import ratio_prior
from laworder.law.weighter import bound, normalise

W_MIN, W_MAX = 1e-3, 2.0
R_EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 1.0)
"""Bins of r; 0.25 is where saturation ends."""


@dataclass(frozen=True)
class WeightSummary:
    """Over the masks of a set, at one grid.

    ratio:       r of every mask
    mean_weight: mean of w after the clamp, of every mask
    blank:       share of masks that are empty or full there, so that LAW weighs them evenly
    lost:        of the masks that hold a lesion, the share that is empty there; lost_masks: their number
    saturated:   share of all lesion cells that sit at w_max
    """

    side: int
    resize: str
    lost_masks: int
    ratio: Float64[np.ndarray, " n"]
    mean_weight: Float32[np.ndarray, " n"]
    blank: float
    lost: float
    saturated: float

    def histogram(self) -> list[float]:
        """Share of the masks in each bin of r, after the share with r = 0."""
        counts = [float((self.ratio == 0).mean())]
        pairs = itertools.pairwise(R_EDGES)
        return counts + [float(((self.ratio > a) & (self.ratio <= b)).mean()) for a, b in pairs]


def weights_of(
    cells: Int64[np.ndarray, " u"], side: int, *, w_min: float = W_MIN, w_max: float = W_MAX
) -> tuple[Float32[np.ndarray, " u"], Float32[np.ndarray, " u"], Float32[np.ndarray, " u"]]:
    """Weight of a lesion cell, of a background cell, and the mean weight, for masks with so many lesion cells.

    The weights do not depend on where the lesion lies, so a mask with its first cells filled stands for all; they are
    LAW's own functions that are called.
    """
    total = side * side
    filled = (torch.arange(total)[None] < torch.from_numpy(cells)[:, None]).to(torch.float32)
    ratio, informative = ratio_prior(filled[:, None, :, None])
    w = bound(normalise(ratio, informative), w_min, w_max)[:, 0, :, 0]
    return w[:, 0].numpy(), w[:, -1].numpy(), w.mean(dim=1).numpy()


def summarise(
    cells: Int64[np.ndarray, " n"], empty: np.ndarray, side: int, resize: str, *, w_max: float = W_MAX
) -> WeightSummary:
    """cells: lesion cells of every mask on the grid; empty: whether the mask is empty at full size"""
    kinds, where = np.unique(cells, return_inverse=True)
    parts = [weights_of(part, side, w_max=w_max) for part in np.array_split(kinds, max(1, len(kinds) // 512))]
    lesion, mean = (np.concatenate([part[k] for part in parts])[where] for k in (0, 2))
    total = int(cells.sum())
    blank = (cells == 0) | (cells == side * side)
    held = (lesion >= w_max) & ~blank
    return WeightSummary(
        side=side,
        resize=resize,
        lost_masks=int(((cells == 0) & ~empty).sum()),
        ratio=cells / (side * side),
        mean_weight=mean,
        blank=float(blank.mean()),
        lost=float(((cells == 0) & ~empty).sum() / max(1, int((~empty).sum()))),
        saturated=float(cells[held].sum() / total) if total else 0.0,
    )
