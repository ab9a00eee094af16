"""The update rules of `seg train`, for all members at once and without a number that the host would have to change.

Whatever depends on the step comes as a row of scalars for each member, so that a captured CUDA graph can replay every
update. The tests hold these rules against the libraries' (`segmentation.optimiser`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laworder.segmentation.optimiser import BETAS
from laworder.segmentation.settings import Optimiser

EPSILON = 1e-8
SCALARS = ("active", "lr", "debias1", "debias2", "alpha", "beta3")
"""active: 1 where the member makes this update; debias1: 1 − β₁ᵏ; debias2: √(1 − β₂ᵏ)."""

State = dict[str, Tensor]
Spread = Mapping[str, Float[Tensor, " n"]]


def scalars(settings: Optimiser, step: int, factor: float, *, active: bool) -> tuple[float, ...]:
    """What update `step` needs, in the order of `SCALARS`; `factor` is the schedule's."""
    alpha, beta3 = settings.alpha, settings.beta3
    if settings.mix_warmup:
        share = step / settings.mix_warmup
        alpha = min(share * settings.alpha, settings.alpha)
        fast, slow = math.log(BETAS[0]), math.log(settings.beta3)
        beta3 = min(math.exp(fast * slow / ((1 - share) * slow + share * fast)), settings.beta3)
    debias1, debias2 = 1 - BETAS[0] ** step, math.sqrt(1 - BETAS[1] ** step)
    return float(active), settings.lr * factor, debias1, debias2, alpha, beta3


@dataclass(frozen=True)
class Rule:
    """slots: names of its running averages, as in the library's state; update: (θ, g, state, scalars) → θ, state."""

    slots: tuple[str, ...]
    update: Callable[[Tensor, Tensor, State, Spread, float], tuple[Tensor, State]]


def ademamix(theta: Tensor, g: Tensor, state: State, k: Spread, decay: float) -> tuple[Tensor, State]:
    """AdEMAMix with decoupled decay, as `segmentation.optimiser.build_optimiser` writes it out."""
    theta = theta * (1 - decay * k["lr"])
    m1 = torch.lerp(state["exp_avg"], g, 1 - BETAS[0])
    v = state["exp_avg_sq"] * BETAS[1] + (1 - BETAS[1]) * g * g
    m2 = torch.lerp(state["exp_avg_slow"], g, 1 - k["beta3"])
    moved = (m1 / k["debias1"] + k["alpha"] * m2) / (v.sqrt() / k["debias2"] + EPSILON)
    return theta - k["lr"] * moved, {"exp_avg": m1, "exp_avg_sq": v, "exp_avg_slow": m2}


def adamw(theta: Tensor, g: Tensor, state: State, k: Spread, decay: float) -> tuple[Tensor, State]:
    """AdamW (Loshchilov & Hutter 2019)."""
    theta = theta * (1 - decay * k["lr"])
    m = torch.lerp(state["exp_avg"], g, 1 - BETAS[0])
    v = state["exp_avg_sq"] * BETAS[1] + (1 - BETAS[1]) * g * g
    moved = (m / k["debias1"]) / (v.sqrt() / k["debias2"] + EPSILON)
    return theta - k["lr"] * moved, {"exp_avg": m, "exp_avg_sq": v}


RULES = {
    "ademamix": Rule(("exp_avg", "exp_avg_sq", "exp_avg_slow"), ademamix),
    "adamw": Rule(("exp_avg", "exp_avg_sq"), adamw),
}
