"""The update rule and its learning rate, from the settings of a run."""

from __future__ import annotations

from torch import nn
from torch.optim import AdamW, Optimizer

from laworder.errors import UserError
from laworder.runs.schedules import Schedule, cosine
from laworder.segmentation.settings import Optimiser

BETAS = (0.9, 0.999)
"""Of the fast average and of the squares, in either rule."""


def build_optimiser(model: nn.Module, settings: Optimiser) -> Optimizer:
    """AdEMAMix (Pagliardini et al. 2024) with decoupled decay, or AdamW.

    With g the gradient, k the number of the update and λ the decay:

        m₁ ← β₁m₁ + (1 − β₁)g      m₂ ← β₃(k)m₂ + (1 − β₃(k))g      v ← β₂v + (1 − β₂)g²
        θ  ← θ − η·((m₁ / (1 − β₁ᵏ) + α(k)·m₂) / (√(v / (1 − β₂ᵏ)) + 1e-8) + λθ)

    The slow average m₂ is not corrected for its start at 0. With `mix_warmup` = T > 0, α(k) = min(αk / T, α), and β₃(k)
    rises from β₁ so that the half-life of m₂ grows linearly: with s = k / T,
    β₃(k) = min(β₃, exp(ln β₁·ln β₃ / ((1 − s)·ln β₃ + s·ln β₁))).
    """
    if settings.name == "adamw":
        return AdamW(model.parameters(), lr=settings.lr, betas=BETAS, weight_decay=settings.weight_decay)
    from pytorch_optimizer import AdEMAMix  # two seconds, which only training should pay

    return AdEMAMix(
        model.parameters(),
        lr=settings.lr,
        betas=(*BETAS, settings.beta3),
        weight_decay=settings.weight_decay,
        weight_decouple=True,
        alpha=settings.alpha,
        t_alpha_beta3=settings.mix_warmup or None,
    )


def build_schedule(settings: Optimiser, steps: int) -> Schedule:
    """A warm-up, then half a cosine from `lr` to `floor`. `steps` are updates, however many processes share them."""
    if settings.floor > settings.lr:
        raise UserError(f"optimiser.floor: {settings.floor:g} is above the peak rate {settings.lr:g}; lower it")
    return cosine(steps, floor=settings.floor / settings.lr, warmup=settings.warmup)
