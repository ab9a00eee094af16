"""Precision, recall, density, coverage against loops over every pair, and on sets whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from laworder.errors import UserError
from laworder.metrics.neighbours import neighbours


def draws(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)


def by_loops(real: np.ndarray, made: np.ndarray, k: int) -> tuple[float, float, float, float]:
    def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([[np.linalg.norm(p - q) for q in b] for p in a])

    reach_x = np.sort(apart(real, real), axis=1)[:, k]
    reach_y = np.sort(apart(made, made), axis=1)[:, k]
    between = apart(real, made)
    inside = between <= reach_x[:, None]
    recalled = (between <= reach_y[None, :]).any(1)
    return inside.any(0).mean(), recalled.mean(), inside.sum() / (k * len(made)), inside.any(1).mean()


def test_all_four_are_those_of_the_definitions() -> None:
    real, made = draws(40), 0.7 * draws(33, seed=1) + 0.4
    found = neighbours(real, made, k=3)
    expected = by_loops(real, made, 3)
    assert (found.precision, found.recall, found.density, found.coverage) == pytest.approx(expected, abs=1e-6)


def test_a_generator_of_one_kind_is_precise_and_recalls_little() -> None:
    real = draws(200)
    narrow = neighbours(real, 0.05 * draws(200, seed=1))
    assert narrow.precision == 1.0
    assert narrow.recall < 0.05
    far = neighbours(real, draws(200, seed=1) + 50)
    assert (far.precision, far.recall, far.density, far.coverage) == (0, 0, 0, 0)
    alike = neighbours(real, draws(200, seed=2))
    assert alike.density == pytest.approx(1, abs=0.2)
    assert alike.coverage > 0.85


def test_too_few_images_are_refused() -> None:
    with pytest.raises(UserError, match="at least 6 images a side, not 5 and 40"):
        neighbours(draws(5), draws(40))
