"""The fixed weightings that LAW is compared with: uniform, constant, ratio."""

from __future__ import annotations

from typing import Any

import torch

from laworder.errors import UserError
from laworder.law.base import Batch, Objective, Weighing
from laworder.law.masks import union
from laworder.law.prior import prior


class Uniform(Objective):
    """w = 1: the plain objective of diffusion (eq. 2), `mse_loss` split into samples."""

    def weigh(self, batch: Batch) -> Weighing:
        return Weighing(torch.ones_like(batch.error))


class ConstantWeight(Objective):
    """w = 1 + (weight − 1) · m: lesion pixels count `weight` times, whatever their number."""

    def __init__(self, *, weight: float = 2.0, **geometry: Any) -> None:
        super().__init__(**geometry)
        if weight <= 0:
            raise UserError(f"weight (of lesion pixels, background is 1) must be above 0, not {weight}")
        self.weight = weight

    def weigh(self, batch: Batch) -> Weighing:
        return Weighing(1.0 + (self.weight - 1.0) * union(batch.m))


class RatioPrior(Objective):
    """w = w_ratio as it is (eq. 3): no normalisation, no clamp. The paper's row "ArSDM".

    The published ArSDM is a pixel-space model with an L1 loss; say "ControlNet + ratio prior". Since mean(w) is
    2r(1 − r), samples with small lesions contribute little loss altogether. An empty or full mask takes w = 1.
    """

    def weigh(self, batch: Batch) -> Weighing:
        weights, informative = prior(batch.m)
        return Weighing(weights, informative=informative)
