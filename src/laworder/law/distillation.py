"""Adaptive Distillation: a teacher that sees mask and image, a student that sees the mask.

    L = MSE(ε_S, ε) + MSE(ε_T, ε) + mean(w_ratio ⊙ (ε_S − stopgrad ε_T)²)

Sampling uses the student alone.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from laworder.law.base import Batch, Objective, Weighing, reduce, squared_error
from laworder.law.prior import prior


class Distillation(Objective):
    """The sum of three terms: parts `denoise` (student), `teacher` and `distill`. `weight_map` is the third's.

    The teacher learns from its own term only. The timestep's weight multiplies all three. Its `stats` on errors are
    the student's against the target. An empty or full mask takes w = 1.
    """

    needs_teacher: ClassVar[bool] = True

    def weigh(self, batch: Batch) -> Weighing:
        weights, informative = prior(batch.m)
        return Weighing(weights, informative=informative)

    def finish(self, batch: Batch, denoise: Tensor, weighing: Weighing) -> tuple[Tensor, dict[str, Tensor]]:
        del denoise  # the weighted form; the student's own term here is the plain one
        assert batch.teacher is not None
        kind = batch.error.dtype
        gap = squared_error(batch.pred, batch.teacher.detach(), kind)
        parts = {
            "denoise": reduce(batch.error, batch.timestep_weight),
            "teacher": reduce(squared_error(batch.teacher, batch.target, kind), batch.timestep_weight),
            "distill": reduce(weighing.w * gap, batch.timestep_weight),
        }
        return parts["denoise"] + parts["teacher"] + parts["distill"], parts
