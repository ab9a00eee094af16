"""Weights for the timestep: small functions of the signal-to-noise ratio, chosen by name.

A weighting is stated for one kind of prediction; the squared errors of the kinds differ by a factor of SNR only
(z = αx₀ + σε, SNR = α²/σ²):

    ‖Δε‖² = SNR · ‖Δx₀‖²,   ‖Δv‖² = (SNR + 1) · ‖Δx₀‖²,   ‖Δu‖² = (1 + √SNR)² · ‖Δx₀‖²

with v = αε − σx₀ (α² + σ² = 1), and u = ε − x₀ for flow matching (α = 1 − t, σ = t). So a weight λ on ‖Δx₀‖² is
λ divided by that factor on the prediction that the network makes:

- `min_snr`: λ = min(SNR, γ) (Hang et al. 2023). On ε it is min(SNR, γ)/SNR, on v it is min(SNR, γ)/(SNR + 1): the "+ 1"
  that a v-prediction needs and that training scripts have missed.
- `p2`: 1/(k + SNR)^γ on ‖Δε‖² (Choi et al. 2022), so λ = SNR/(k + SNR)^γ.
- `none`: 1 on the prediction's own error, whatever it predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laworder.errors import UserError, nearest

_LARGEST = 1e12
"""SNR is clamped to [1e-12, 1e12]: zero-terminal-SNR schedules and t = 0 of a flow then have finite weights."""

PREDICTIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "epsilon": lambda snr: snr,
    "v_prediction": lambda snr: snr + 1.0,
    "sample": torch.ones_like,
    "flow_prediction": lambda snr: (1.0 + snr.sqrt()).square(),
}
"""What the network predicts (diffusers' names; `sample` is x₀) → its squared error in units of x₀'s."""


def min_snr(snr: Float[Tensor, " b"], *, gamma: float = 5.0) -> Float[Tensor, " b"]:
    """λ = min(SNR, γ)."""
    return snr.clamp(max=gamma)


def p2(snr: Float[Tensor, " b"], *, k: float = 1.0, gamma: float = 1.0) -> Float[Tensor, " b"]:
    """λ = SNR / (k + SNR)^γ."""
    return snr / (k + snr) ** gamma


TIMESTEP_WEIGHTS: Final[dict[str, Callable[..., Tensor] | None]] = {"none": None, "min_snr": min_snr, "p2": p2}


def timestep_weight(name: str, snr: Float[Tensor, " b"], *, prediction: str, **settings: Any) -> Float[Tensor, " b"]:
    """The factor on each sample's denoising loss: pass it as `objective(..., timestep_weight=...)`.

    `timestep_weight("min_snr", snr_of_schedule(scheduler.alphas_cumprod, t), prediction="epsilon", gamma=5.0)`
    """
    if name not in TIMESTEP_WEIGHTS:
        raise UserError(f"unknown timestep weight {name!r}{nearest(name, TIMESTEP_WEIGHTS)}")
    if prediction not in PREDICTIONS:
        raise UserError(f"unknown prediction {prediction!r}{nearest(prediction, PREDICTIONS)}")
    weight = TIMESTEP_WEIGHTS[name]
    if weight is None:
        if settings:
            raise UserError(f"timestep weight 'none' takes no settings, not {', '.join(settings)}")
        return torch.ones_like(snr)
    snr = snr.clamp(1.0 / _LARGEST, _LARGEST)
    try:
        return weight(snr, **settings) / PREDICTIONS[prediction](snr)
    except TypeError as error:
        raise UserError(f"timestep weight {name!r}: {error}") from error


def snr_of_schedule(alphas_cumprod: Float[Tensor, " steps"], t: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """SNR = ᾱ_t / (1 − ᾱ_t) of a discrete schedule (eq. 1), for integer timesteps."""
    a = alphas_cumprod.to(t.device)[t]
    return a / (1.0 - a)


def snr_of_flow(t: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """SNR = ((1 − t)/t)² of the straight path z = (1 − t)x₀ + tε."""
    return ((1.0 - t) / t).square()
