r"""Does a probability mean what it says? Reliability bins and the expected calibration error.

Pixels are sorted by their probability p into equal bins. In a calibrated model the lesion share of each bin equals its
mean probability. ECE = Σ_b n_b / n · |mean(y) − mean(p)| over the bins b (Guo et al. 2017, for binary outcomes).
Almost all pixels of an image are easy background, so the ECE over all pixels is small for any model: the bins are the
result, and ECE over the pixels with p ≥ `least` leaves the easy ones out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laworder.errors import UserError


@dataclass(frozen=True)
class Reliability:
    """One bin: its edges, how many pixels fell in, their mean probability, and the share that is lesion."""

    low: float
    high: float
    pixels: int
    probability: float
    lesion: float


def reliability(
    probability: Float[Tensor, "*size"], true: Bool[Tensor, "*size"], *, bins: int = 10
) -> list[Reliability]:
    """Equal bins [low, high) of probability, the last one closed; bins without pixels are left out."""
    if probability.shape != true.shape:
        raise UserError(f"probability {tuple(probability.shape)} and truth {tuple(true.shape)} differ in shape")
    if bins < 1:
        raise UserError(f"bins must be at least 1, not {bins}")
    p = probability.flatten().double()
    if bool(((p < 0) | (p > 1) | p.isnan()).any()):
        raise UserError("probabilities must lie between 0 and 1: apply the sigmoid first")
    where = (p * bins).long().clamp(max=bins - 1)
    pixels = torch.bincount(where, minlength=bins)
    sums = torch.bincount(where, weights=p, minlength=bins)
    lesions = torch.bincount(where, weights=true.flatten().double(), minlength=bins)
    return [
        Reliability(b / bins, (b + 1) / bins, n, float(sums[b]) / n, float(lesions[b]) / n)
        for b, n in enumerate(int(count) for count in pixels)
        if n
    ]


def calibration_error(found: list[Reliability], *, least: float = 0.0) -> float:
    """ECE of reliability bins, of those whose lower edge is at least `least`; NaN where no pixel is left."""
    kept = [b for b in found if b.low >= least]
    total = sum(b.pixels for b in kept)
    return sum(b.pixels * abs(b.lesion - b.probability) for b in kept) / total if total else float("nan")
