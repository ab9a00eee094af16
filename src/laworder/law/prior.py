"""The ratio prior: lesion and background get the same total weight.

    w_ratio(m) = m · (1 − r) + (1 − m) · r,      r = |m| / (HW)                                            (eq. 3)

Its mean is 2r(1 − r) for any mask, soft ones too, since Σ m = HW·r. It vanishes exactly where the mask is empty
(r = 0) or full (r = 1): such a mask says nothing about where to look, so every objective takes w = 1 for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

DEGENERATE = 1e-12
"""Below this share of the grid a class counts as absent. One voxel of a 1024³ volume is 9e-10."""


class Prior(NamedTuple):
    """What the mask alone says."""

    weights: Float[Tensor, "b 1 *size"]
    """w_ratio, and 1 where the mask is empty or full."""
    informative: Bool[Tensor, "b 1 *ones"]
    """False for empty and full masks."""


def ratio(m: Float[Tensor, "b k *size"]) -> Float[Tensor, "b k *ones"]:
    """r = |m| / HW per sample and class, with singleton spatial axes so that it broadcasts."""
    return m.mean(dim=tuple(range(2, m.ndim)), keepdim=True)


def ratio_prior(m: Float[Tensor, "b 1 *size"]) -> Prior:
    """w_ratio of eq. 3, one ratio per sample. Equation 3 is the linear interpolation from r to 1 − r at m."""
    r = ratio(m)
    rest = 1.0 - r
    informative = r * rest > DEGENERATE
    return Prior(torch.where(informative, torch.lerp(r, rest, m), 1.0), informative)


def balanced_prior(m: Float[Tensor, "b k *size"]) -> Prior:
    """Eq. 3 for K lesion classes: one ratio per class, the same mass for each class that is present.

        w(m) = (1 − Σ_c r_c²) / n · Σ_c m_c / r_c,      c over the n classes present, background m_0 = 1 − Σ_k m_k

    Where classes do not overlap, each present one weighs HW·mean(w)/n, mean(w) is 1 − Σ_c r_c², and for one lesion
    class the formula is eq. 3 itself. Classes with r_c = 0 take no part.
    """
    background = (1.0 - m.sum(dim=1, keepdim=True)).clamp(min=0.0)
    every = torch.cat([background, m], dim=1)
    r = ratio(every)
    present = r > DEGENERATE
    count = present.sum(dim=1, keepdim=True)
    shares = torch.where(present, every / torch.where(present, r, 1.0), 0.0).sum(dim=1, keepdim=True)
    # Classes may overlap (an organ and a lesion in it): their ratios then sum to more than 1 and are scaled back.
    spread = 1.0 - (r / r.sum(dim=1, keepdim=True)).square().sum(dim=1, keepdim=True)
    informative = spread > DEGENERATE
    return Prior(torch.where(informative, spread / count.clamp(min=1) * shares, 1.0), informative)


def prior(m: Float[Tensor, "b k *size"]) -> Prior:
    """Eq. 3 for one lesion class, its balanced form for several."""
    return ratio_prior(m) if m.shape[1] == 1 else balanced_prior(m)
