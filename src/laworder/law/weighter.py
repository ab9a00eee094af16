"""The learnable weighter: φ, δ and μ, and the two stabilisers.

    δ = σ(φ(f_t, m) / τ)                       (eq. 4)
    μ = 1 + γ · (2δ − 1)                       (eq. 5)
    w_adapt = w_ratio(m) ⊙ μ                   (eq. 6)
    w_final = clamp(w_adapt / mean(w_adapt), w_min, w_max)      (eq. 7)

All of it, φ too, runs in float32 even under autocast (float64 for float64 input): φ is so small that casting its
weights would cost more than it saves.
"""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from laworder.law.guard import refuse_in_sampling


class DeltaNet(nn.Module):
    """φ: three 3×3 convolutions with bias, C + K → hidden → hidden → 1, SiLU between.

    The last layer starts at zero, so that δ = ½ and w is the pure prior at step 0. 11,009 parameters for four latent
    channels and one mask channel. `extra` adds constant channels (the diffusion time, for `LawPlus`).
    """

    def __init__(self, *, channels: int, classes: int = 1, hidden: int = 32, spatial_dims: int = 2, extra: int = 0):
        super().__init__()
        conv = nn.Conv2d if spatial_dims == 2 else nn.Conv3d
        self.layers = nn.Sequential(
            conv(channels + classes + extra, hidden, 3, padding=1),
            nn.SiLU(),
            conv(hidden, hidden, 3, padding=1),
            nn.SiLU(),
            conv(hidden, 1, 3, padding=1),
        )
        self.last = cast("nn.Conv2d", self.layers[-1])
        nn.init.zeros_(self.last.weight)
        assert self.last.bias is not None
        nn.init.zeros_(self.last.bias)

    def forward(self, *inputs: Float[Tensor, "b _ *size"]) -> Float[Tensor, "b 1 *size"]:
        """Logits of δ, before the temperature, in whatever type the convolutions run in."""
        refuse_in_sampling("LAW's φ")
        kind = self.last.weight.dtype
        return self.layers(torch.cat([x.to(kind) for x in inputs], dim=1))


def delta_map(logits: Float[Tensor, "b 1 *size"], tau: float, kind: torch.dtype) -> Float[Tensor, "b 1 *size"]:
    """δ of eq. 4, in the statistics' type."""
    return torch.sigmoid(logits.to(kind) / tau)


def modulate(
    ratio: Float[Tensor, "b 1 *size"],
    informative: Bool[Tensor, "b 1 *ones"],
    delta: Float[Tensor, "b 1 *size"],
    gamma: float,
) -> Float[Tensor, "b 1 *size"]:
    """w_adapt of eq. 6, with μ of eq. 5 multiplied out: w_ratio + γ · w_ratio ⊙ (2δ − 1).

    Where the mask is empty or full, the second term is left out: `ratio` is 1 there, and so w stays 1 through all that
    follows, while φ keeps a gradient (of zero), which DistributedDataParallel insists on.
    """
    return torch.addcmul(ratio, ratio * informative, 2.0 * delta - 1.0, value=gamma)


def normalise(
    w: Float[Tensor, "b 1 *size"], informative: Bool[Tensor, "b 1 *ones"], *, over: str = "sample"
) -> Float[Tensor, "b 1 *size"]:
    """w / mean(w); the gradient flows through the mean, as eq. 7 is written.

    `over="sample"` takes the mean over each sample's own pixels, `"batch"` over all pixels of the informative samples
    together; the others, whose w is 1, stay as they are and do not dilute it.
    """
    means = w.mean(dim=tuple(range(1, w.ndim)), keepdim=True)
    if over == "batch":
        pooled = (means * informative).sum(dim=0, keepdim=True) / informative.sum().clamp(min=1)
        means = torch.where(informative, pooled, 1.0)
    return w / means


def bound(w: Float[Tensor, "b 1 *size"], w_min: float | None, w_max: float | None) -> Float[Tensor, "b 1 *size"]:
    """clamp(w, w_min, w_max); None leaves that side open."""
    return w if w_min is None and w_max is None else w.clamp(min=w_min, max=w_max)


def dice_loss(
    delta: Float[Tensor, "b 1 *size"], m: Float[Tensor, "b 1 *size"], *, smooth: float = 1e-6
) -> Float[Tensor, ""]:
    """1 − (2 Σ δm + ε_s) / (Σδ + Σm + ε_s) per sample (eq. 9), and the mean over samples."""
    axes = tuple(range(1, m.ndim))
    overlap, sizes = (delta * m).sum(dim=axes), (delta + m).sum(dim=axes)
    return 1.0 - ((2.0 * overlap + smooth) / (sizes + smooth)).mean()
