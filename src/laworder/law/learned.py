"""LAW: the Learnable Adaptive Weighter (section 3.1.2 of the paper).

    δ = σ(φ(f_t, m) / τ)                                        (eq. 4)
    μ = 1 + γ(2δ − 1)                                           (eq. 5)
    w_adapt = w_ratio(m) ⊙ μ                                    (eq. 6)
    w = clamp(w_adapt / mean(w_adapt), w_min, w_max)            (eq. 7)
    L_S = mean[w ⊙ (pred − target)²]                            (eq. 8)
    L_dice = 1 − (2Σδm + ε_s) / (Σδ + Σm + ε_s)                 (eq. 9)
    L = L_S + λ_dice · L_dice                                   (eq. 10)

What the paper leaves open, and what is chosen here: f_t is the denoiser's prediction, detached before φ; means are per
sample; the gradient flows through the mean; L_dice is per sample, then averaged; an empty or full mask takes w = 1.

Two properties worth knowing. At δ = ½ a lesion pixel weighs 1/(2r) before the clamp and a background pixel
1/(2(1 − r)). So below r = ¼ every lesion pixel sits at w_max = 2, where δ has no say, and mean(w) is 2r + ½: 0.51 at
r = 0.5 %, 0.64 at 7 %. And L_S alone would teach φ to look away from large errors, since that lowers the loss; L_dice
is what holds δ to the mask.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from laworder.errors import UserError, nearest
from laworder.law.base import Batch, Objective, Weighing
from laworder.law.masks import union
from laworder.law.prior import prior
from laworder.law.weighter import DeltaNet, bound, delta_map, dice_loss, modulate, normalise

MEANS = ("sample", "batch")


class LAW(Objective):
    """The learned weighting. `LAW(channels=4)` is the paper's; each further argument is a decision or an ablation.

    `tau`, `gamma`, `dice_weight` (λ_dice), `w_min`, `w_max`, `hidden`: the paper's constants; None opens a clamp.
    `normalise=False`: w_adapt is clamped as it is (the ablation's unstable row).
    `mean`: over each `sample` or over the `batch`.
    `detach=False`: φ's gradients, L_dice's too, also reach the denoiser through f_t.
    `renormalise=True`: w / mean(w) once more after the clamp, so that mean(w) = 1 (w may then exceed `w_max`).
    """

    def __init__(
        self,
        *,
        channels: int,
        tau: float = 3.0,
        gamma: float = 0.2,
        dice_weight: float = 1.0,
        w_min: float | None = 1e-3,
        w_max: float | None = 2.0,
        hidden: int = 32,
        normalise: bool = True,
        mean: str = "sample",
        detach: bool = True,
        renormalise: bool = False,
        **geometry: Any,
    ) -> None:
        super().__init__(channels=channels, **geometry)
        _check_constants(tau, gamma, dice_weight, w_min, w_max, hidden)
        if mean not in MEANS:
            raise UserError(f"mean is {mean!r}{nearest(mean, MEANS)}")
        self.tau, self.gamma, self.dice_weight = tau, gamma, dice_weight
        self.w_min, self.w_max = w_min, w_max
        self.normalise, self.mean, self.detach, self.renormalise = normalise, mean, detach, renormalise
        self.phi = DeltaNet(channels=channels, classes=self.classes, hidden=hidden, spatial_dims=self.spatial_dims)

    def delta(self, f_t: Float[Tensor, "b c *size"], m: Float[Tensor, "b k *size"]) -> Float[Tensor, "b 1 *size"]:
        """δ (eq. 4) for a prediction and a mask at its resolution."""
        return delta_map(self.phi(f_t.detach() if self.detach else f_t, m), self.tau, m.dtype)

    def weigh(self, batch: Batch) -> Weighing:
        delta = self.delta(batch.pred, batch.m)
        ratio, informative = prior(batch.m)
        w = modulate(ratio, informative, delta, self.gamma)
        if self.normalise:
            w = normalise(w, informative, over=self.mean)
        w = bound(w, self.w_min, self.w_max)
        capped = None if self.w_max is None else w >= self.w_max
        if self.renormalise:
            w = normalise(w, informative, over=self.mean)
        return Weighing(w, delta, capped, informative)

    def finish(self, batch: Batch, denoise: Tensor, weighing: Weighing) -> tuple[Tensor, dict[str, Tensor]]:
        assert weighing.delta is not None
        dice = dice_loss(weighing.delta, union(batch.m))
        # Also for λ = 0 the product is taken: φ then still gets a gradient (of zero), which DDP insists on.
        return denoise + self.dice_weight * dice, {"denoise": denoise, "dice": dice}


def _check_constants(
    tau: float, gamma: float, dice_weight: float, w_min: float | None, w_max: float | None, hidden: int
) -> None:
    if tau <= 0:
        raise UserError(f"tau must be above 0, not {tau}")
    if not 0 <= gamma < 1:
        raise UserError(f"gamma must lie in [0, 1), not {gamma}: from 1 on, weights can vanish or turn negative")
    if dice_weight < 0:
        raise UserError(f"dice_weight must not be negative, but is {dice_weight}")
    if w_min is not None and not 0 <= w_min <= 1:
        raise UserError(f"w_min must lie in [0, 1] (the mean weight is 1) or be None, not {w_min}")
    if w_max is not None and w_max < 1:
        raise UserError(f"w_max must be at least 1 (the mean weight is 1) or None, not {w_max}")
    if hidden < 1:
        raise UserError(f"hidden must be at least 1, not {hidden}")
