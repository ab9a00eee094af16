"""LAW: where to spend the denoising loss. Pure tensors; works with any diffusion trainer.

>>> law = LAW(channels=4)
>>> loss = law(pred, target, mask)
>>> loss.total.backward()
"""

from __future__ import annotations

from laworder.law.base import Objective
from laworder.law.diagnostics import strip
from laworder.law.distillation import Distillation
from laworder.law.guard import sampling
from laworder.law.learned import LAW
from laworder.law.loss import Loss
from laworder.law.objectives import ConstantWeight, RatioPrior, Uniform
from laworder.law.plus import LawPlus
from laworder.law.registry import ABLATION, OBJECTIVES, list_objectives, objective
from laworder.law.timestep import (
    PREDICTIONS,
    TIMESTEP_WEIGHTS,
    snr_of_flow,
    snr_of_schedule,
    timestep_weight,
)

__all__ = [
    "ABLATION",
    "LAW",
    "OBJECTIVES",
    "PREDICTIONS",
    "TIMESTEP_WEIGHTS",
    "ConstantWeight",
    "Distillation",
    "LawPlus",
    "Loss",
    "Objective",
    "RatioPrior",
    "Uniform",
    "list_objectives",
    "objective",
    "sampling",
    "snr_of_flow",
    "snr_of_schedule",
    "strip",
    "timestep_weight",
]
