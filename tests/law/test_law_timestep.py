"""Timestep weights for every kind of prediction, against the loop one would write by hand in float64."""

from __future__ import annotations

import math

import pytest
import torch

from laworder.errors import UserError
from laworder.law import (
    LAW,
    OBJECTIVES,
    PREDICTIONS,
    TIMESTEP_WEIGHTS,
    objective,
    snr_of_flow,
    snr_of_schedule,
    timestep_weight,
)

BETAS = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
ALPHAS_CUMPROD = torch.cumprod(1 - BETAS, dim=0)


def by_hand(name: str, prediction: str, alpha: float, sigma: float) -> float:
    """The weight on the prediction's own squared error, each case written out from its paper."""
    snr = (alpha / sigma) ** 2
    if name == "none":
        return 1.0
    if name == "min_snr":
        return {
            "epsilon": min(snr, 5.0) / snr,
            "v_prediction": min(snr, 5.0) / (snr + 1),
            "sample": min(snr, 5.0),
            "flow_prediction": min(snr, 5.0) * sigma**2,  # Δx₀ = tΔu, t = σ
        }[prediction]
    on_epsilon = 1 / (1.0 + snr)
    return {
        "epsilon": on_epsilon,
        "v_prediction": on_epsilon * alpha**2,  # Δε = αΔv
        "sample": on_epsilon * snr,  # Δε = (α/σ)Δx₀
        "flow_prediction": on_epsilon * alpha**2,  # Δε = (1 − t)Δu, 1 − t = α
    }[prediction]


def path_point(prediction: str, k: int) -> tuple[float, float, torch.Tensor]:
    """α, σ and the SNR that the library computes, at step k of 1000."""
    if prediction == "flow_prediction":
        t = (k + 1) / 1001
        return 1 - t, t, snr_of_flow(torch.tensor([t], dtype=torch.float64))
    a = ALPHAS_CUMPROD[k].item()
    return math.sqrt(a), math.sqrt(1 - a), snr_of_schedule(ALPHAS_CUMPROD, torch.tensor([k]))


@pytest.mark.parametrize("prediction", sorted(PREDICTIONS))
@pytest.mark.parametrize("name", sorted(TIMESTEP_WEIGHTS))
def test_weight_matches_the_hand_written_one(name: str, prediction: str) -> None:
    for k in (0, 1, 10, 100, 250, 500, 900, 999):
        alpha, sigma, snr = path_point(prediction, k)
        found = timestep_weight(name, snr, prediction=prediction)
        assert found.item() == pytest.approx(by_hand(name, prediction, alpha, sigma), rel=1e-9), k


@pytest.mark.parametrize("name", ["min_snr", "p2"])
def test_one_weighting_is_one_loss_whatever_the_network_predicts(name: str) -> None:
    """From z and a guess of ε, the implied guesses of v and x₀ have the same weighted error."""
    x0, eps, guess = (torch.randn(16, dtype=torch.float64) for _ in range(3))
    for k in (1, 100, 500, 999):
        a = ALPHAS_CUMPROD[k]
        alpha, sigma = a.sqrt(), (1 - a).sqrt()
        z = alpha * x0 + sigma * eps
        x0_guess = (z - sigma * guess) / alpha
        errors = {
            "epsilon": (guess - eps).square().mean(),
            "v_prediction": ((alpha * guess - sigma * x0_guess) - (alpha * eps - sigma * x0)).square().mean(),
            "sample": (x0_guess - x0).square().mean(),
        }
        snr = snr_of_schedule(ALPHAS_CUMPROD, torch.tensor([k]))
        weighted = [timestep_weight(name, snr, prediction=p)[0] * e for p, e in errors.items()]
        torch.testing.assert_close(weighted[1], weighted[0])
        torch.testing.assert_close(weighted[2], weighted[0])


@pytest.mark.parametrize("prediction", sorted(PREDICTIONS))
@pytest.mark.parametrize("name", sorted(TIMESTEP_WEIGHTS))
def test_ends_of_the_path_are_finite(name: str, prediction: str) -> None:
    """SNR 0 (zero-terminal-SNR schedules) and ∞ (t = 0 of a flow)."""
    w = timestep_weight(name, torch.tensor([0.0, math.inf, 1e-30, 1e30]), prediction=prediction)
    assert torch.isfinite(w).all()
    assert (w >= 0).all()
    if name == "min_snr" and prediction == "epsilon":
        assert w[0] == 1


def test_settings_reach_the_function() -> None:
    snr = torch.tensor([0.5, 20.0], dtype=torch.float64)
    torch.testing.assert_close(
        timestep_weight("min_snr", snr, prediction="epsilon", gamma=1.0), torch.tensor([1.0, 0.05]).double()
    )
    torch.testing.assert_close(timestep_weight("p2", snr, prediction="epsilon", k=2.0, gamma=0.5), (2.0 + snr) ** -0.5)


@pytest.mark.parametrize("prediction", sorted(PREDICTIONS))
@pytest.mark.parametrize("name", sorted(TIMESTEP_WEIGHTS))
@pytest.mark.parametrize("kind", sorted(OBJECTIVES))
def test_weight_multiplies_each_samples_denoising_terms(kind: str, name: str, prediction: str) -> None:
    """Batch of different timesteps = mean over samples of weight × the sample's own terms (φ's terms have none)."""
    steps = (3, 400, 990)
    pred, target = torch.randn(2, 3, 4, 6, 6, dtype=torch.float64).unbind(0)
    mask = (torch.rand(3, 1, 6, 6) > 0.8).double()
    made = objective(kind, channels=4).double()
    weights = torch.cat([timestep_weight(name, path_point(prediction, k)[2], prediction=prediction) for k in steps])
    parts = made(pred, target, mask, teacher=pred.flip(0), timestep_weight=weights).parts
    expected = dict.fromkeys(parts, 0.0)
    for b, k in enumerate(steps):
        one = slice(b, b + 1)
        alone = made(pred[one], target[one], mask[one], teacher=pred.flip(0)[one]).parts
        alpha, sigma, _ = path_point(prediction, k)
        for key, value in alone.items():
            factor = 1.0 if key in ("dice", "fit") else by_hand(name, prediction, alpha, sigma)
            expected[key] += factor * value.item() / 3
    assert {key: value.item() for key, value in parts.items()} == pytest.approx(expected, rel=1e-9)


def test_misspelt_names_are_answered() -> None:
    snr = torch.ones(2)
    with pytest.raises(UserError, match="did you mean 'min_snr'"):
        timestep_weight("minsnr", snr, prediction="epsilon")
    with pytest.raises(UserError, match="did you mean 'v_prediction'"):
        timestep_weight("p2", snr, prediction="v_pred")
    with pytest.raises(UserError, match="takes no settings, not gamma"):
        timestep_weight("none", snr, prediction="epsilon", gamma=5.0)
    with pytest.raises(UserError, match="min_snr"):
        timestep_weight("min_snr", snr, prediction="epsilon", k=1.0)


@pytest.mark.untyped
def test_one_weight_per_sample() -> None:
    x = torch.randn(2, 4, 4, 4)
    with pytest.raises(UserError, match="timestep_weight must be one number per sample"):
        LAW(channels=4)(x, x, x[:, :1] > 0, timestep_weight=torch.ones(3))
