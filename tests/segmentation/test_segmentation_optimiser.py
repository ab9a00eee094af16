"""The update rules against the published formulas, in double precision, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from laworder.errors import UserError
from laworder.segmentation.optimiser import build_optimiser, build_schedule
from laworder.segmentation.settings import Optimiser

STEPS = 1000
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Point(nn.Module):
    def __init__(self, start: np.ndarray) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor(start))


def published(start: np.ndarray, gradients: np.ndarray, rates: list[float], settings: Optimiser) -> np.ndarray:
    """Algorithm 1 of Pagliardini et al. (2024), every step of it: θ after each update."""
    theta, m1, m2, v = start.copy(), *(np.zeros_like(start) for _ in range(3))
    path, warm = [], settings.mix_warmup
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        alpha, beta3 = settings.alpha, settings.beta3
        if warm:
            alpha = min(t * alpha / warm, alpha)
            upper = math.log(BETA1) * math.log(settings.beta3)
            lower = (1 - t / warm) * math.log(settings.beta3) + t / warm * math.log(BETA1)
            beta3 = min(math.exp(upper / lower), settings.beta3)
        m1 = BETA1 * m1 + (1 - BETA1) * g
        m2 = beta3 * m2 + (1 - beta3) * g
        v = BETA2 * v + (1 - BETA2) * g**2
        m1_hat, v_hat = m1 / (1 - BETA1**t), v / (1 - BETA2**t)
        theta = theta - lr * ((m1_hat + alpha * m2) / (np.sqrt(v_hat) + EPS) + settings.weight_decay * theta)
        path.append(theta)
    return np.stack(path)


@pytest.mark.parametrize(
    "settings",
    [
        Optimiser(lr=1e-2, weight_decay=0.1),
        Optimiser(lr=1e-2, weight_decay=0.1, mix_warmup=400),
        Optimiser(lr=3e-3, weight_decay=0.0, alpha=8.0, beta3=0.99, mix_warmup=2000),
    ],
    ids=["constant", "rising", "still-rising"],
)
def test_ademamix_is_the_published_rule(settings: Optimiser) -> None:
    chance = np.random.default_rng(0)
    start, gradients = chance.normal(size=7), chance.normal(size=(STEPS, 7)) * np.logspace(-4, 2, 7)
    schedule = build_schedule(settings, STEPS)
    rates = [settings.lr * schedule(step) for step in range(1, STEPS + 1)]
    point = Point(start)
    optimiser = build_optimiser(point, settings)
    path = []
    for gradient, rate in zip(gradients, rates, strict=True):
        point.at.grad = torch.tensor(gradient)
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()
        path.append(point.at.detach().numpy().copy())
    np.testing.assert_allclose(np.stack(path), published(start, gradients, rates, settings), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("changed", [{"weight_decay": 0.0}, {"alpha": 4.0}, {"beta3": 0.999}, {"mix_warmup": 50}])
def test_the_comparison_above_would_see_a_difference(changed: dict[str, float]) -> None:
    gradients = np.random.default_rng(0).normal(size=(100, 3))
    one, other = ({"lr": 1e-2, "weight_decay": 0.1, **more} for more in ({}, changed))
    a, b = (published(np.ones(3), gradients, [1e-2] * 100, Optimiser(**each)) for each in (one, other))  # type: ignore[arg-type]
    assert np.abs(a - b).max() > 1e-6


def test_adamw_decays_the_weights_and_not_the_gradient() -> None:
    point = Point(np.ones(2))
    optimiser = build_optimiser(point, Optimiser(name="adamw", lr=0.5, weight_decay=0.1))
    point.at.grad = torch.zeros(2, dtype=torch.float64)
    optimiser.step()
    assert point.at.tolist() == pytest.approx([0.95, 0.95])


def test_the_schedule_warms_up_and_ends_at_the_floor() -> None:
    factor = build_schedule(Optimiser(lr=1e-2, floor=1e-3, warmup=4), 20)
    assert [factor(step) for step in (1, 2, 4, 5)] == pytest.approx([0.25, 0.5, 1, 1])
    assert 0.1 < factor(20) < 0.12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Optimiser(lr=1e-7), "optimiser.floor: 1e-06 is above the peak rate 1e-07; lower it"),
        (Optimiser(warmup=20), "a cosine over 20 steps needs a warm-up of 0 to 19 steps, not 20"),
    ],
)
def test_impossible_schedules_are_named(settings: Optimiser, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_schedule(settings, 20)
    assert str(caught.value).startswith(message)
