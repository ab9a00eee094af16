"""LAW+: a fixed lesion budget that δ distributes. Not in the paper, and no better until a study says so.

Why: below r = ¼ the paper's clamp pins every lesion pixel to w_max, so that δ has no say inside exactly those lesions
that matter, while the total weight shrinks. Here nothing is clamped, and mean(w) = 1 by construction. With
m the lesion (any class), r its ratio, N pixels, and b = 1 − m:

    w = β · m ⊙ μ / mean(m ⊙ μ)  +  (1 − β) · b ⊙ ν / mean(b ⊙ ν)

- β, the lesion's share of the total weight: min(max(share, r), a·r), a = w_max (1 − γ)/(1 + γ). So it is `share` for
  lesions of some size, never below the lesion's own area, and at most what keeps w ≤ w_max however small the lesion.
- μ = 1 + γ(2δ − 1) distributes it among lesion pixels, at most (1 + γ)/(1 − γ) to 1.
- ν = 1 + η · band lifts the background within a band of `border_width` cells around the lesion, where shape is decided.

Hence w ≤ w_max, and no pixel is silenced. An empty or full mask takes w = 1.

What δ learns: the paper's L_S would draw weight to the easy pixels, since that lowers the loss. Here the denoiser sees
w as a constant, and φ has a target of its own: the denoiser's error e relative to its mean ē over the lesion,

    L_fit = Σ m (2δ − 1 − clamp((e/ē − 1)/γ, −1, 1))² / Σ m        (per sample, then the mean)

so that μ estimates the expected relative error, and the budget goes where the denoiser is known to be worse. With
`time=True`, φ also sees the diffusion time as a constant channel.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from laworder.errors import UserError
from laworder.law.base import Batch, Objective, Weighing
from laworder.law.masks import border_band, union
from laworder.law.prior import DEGENERATE, ratio
from laworder.law.weighter import DeltaNet, delta_map


class LawPlus(Objective):
    """Parts: `denoise` and `fit`. Several lesion classes share one budget.

    `share`: the lesion's share of the total weight. `w_max`: no weight exceeds it. `gamma`: how far δ may tilt the
    lesion. `border`, `border_width`: η, and the band's cells. `fit_weight`: factor of L_fit, which moves φ alone.
    """

    def __init__(
        self,
        *,
        channels: int,
        share: float = 0.5,
        gamma: float = 0.5,
        w_max: float = 9.0,
        border: float = 0.5,
        border_width: int = 1,
        tau: float = 3.0,
        hidden: int = 32,
        fit_weight: float = 1.0,
        time: bool = False,
        **geometry: Any,
    ) -> None:
        super().__init__(channels=channels, **geometry)
        _check_constants(share, gamma, w_max, border, border_width, tau, fit_weight)
        self.share, self.gamma, self.w_max, self.tau = share, gamma, w_max, tau
        self.border, self.border_width, self.fit_weight, self.time = border, border_width, fit_weight, time
        self.phi = DeltaNet(
            channels=channels, classes=self.classes, hidden=hidden, spatial_dims=self.spatial_dims, extra=int(time)
        )

    def delta(self, batch: Batch) -> Float[Tensor, "b 1 *size"]:
        """δ = σ(φ(f_t, m, t)/τ), f_t detached."""
        inputs = [batch.pred.detach(), batch.m]
        if self.time:
            if batch.time is None:
                raise UserError("LawPlus(time=True) needs the diffusion time: call it with time=..., one per sample")
            inputs.append(batch.time.view(-1, *[1] * (batch.m.ndim - 1)).expand_as(batch.error))
        return delta_map(self.phi(*inputs), self.tau, batch.m.dtype)

    def weigh(self, batch: Batch) -> Weighing:
        delta = self.delta(batch)
        lesion = union(batch.m)
        background = 1.0 - lesion
        r = ratio(lesion)
        informative = r * (1.0 - r) > DEGENERATE
        slope = self.w_max * (1.0 - self.gamma) / (1.0 + self.gamma)
        budget = torch.minimum(r.clamp(min=self.share), slope * r)
        tilted = lesion * (1.0 + self.gamma * (2.0 * delta.detach() - 1.0))
        band = border_band((lesion >= 0.5).to(lesion.dtype), width=self.border_width)
        lifted = background * (1.0 + self.border * band)
        w = budget * _spread(tilted) + (1.0 - budget) * _spread(lifted)
        return Weighing(torch.where(informative, w, 1.0), delta, None, informative)

    def finish(self, batch: Batch, denoise: Tensor, weighing: Weighing) -> tuple[Tensor, dict[str, Tensor]]:
        assert weighing.delta is not None
        lesion, error = union(batch.m), batch.error.detach()
        axes = tuple(range(1, lesion.ndim))
        tiny = torch.finfo(error.dtype).tiny
        size = lesion.sum(dim=axes, keepdim=True).clamp(min=DEGENERATE)
        mean_error = (lesion * error).sum(dim=axes, keepdim=True) / size
        relative = (error / mean_error.clamp(min=tiny) - 1.0) / self.gamma
        gap = 2.0 * weighing.delta - 1.0 - relative.clamp(-1.0, 1.0)
        fit = ((lesion * gap.square()).sum(dim=axes, keepdim=True) / size).mean()
        return denoise + self.fit_weight * fit, {"denoise": denoise, "fit": fit}


def _spread(x: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 1 *size"]:
    """x / mean(x) per sample; 0 where x is 0 everywhere."""
    return x / x.mean(dim=tuple(range(1, x.ndim)), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _check_constants(
    share: float, gamma: float, w_max: float, border: float, border_width: int, tau: float, fit_weight: float
) -> None:
    if not 0 < share < 1:
        raise UserError(f"share (of the weight that lesions get) must lie between 0 and 1, not {share}")
    if not 0 < gamma < 1:
        raise UserError(f"gamma must lie between 0 and 1, not {gamma}")
    if border < 0:
        raise UserError(f"border must not be negative, but is {border}")
    if border_width < 1:
        raise UserError(f"border_width must be at least 1 cell, not {border_width}")
    least = max((1 + gamma) / (1 - gamma), 1 + border)
    if w_max < least:
        raise UserError(f"w_max must be at least {least:.3g} for gamma={gamma} and border={border}, not {w_max}")
    if tau <= 0:
        raise UserError(f"tau must be above 0, not {tau}")
    if fit_weight < 0:
        raise UserError(f"fit_weight must not be negative, but is {fit_weight}")
