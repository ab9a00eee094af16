"""Learning-rate factors at the steps that matter."""

from __future__ import annotations

import pytest

from laworder.errors import UserError
from laworder.runs import constant, cosine


def test_constant() -> None:
    assert {constant(step) for step in (1, 7, 10**6)} == {1.0}


def test_cosine_by_hand() -> None:
    factor = cosine(4, floor=0.2)
    expected = [1.0, 0.2 + 0.8 * (1 + 2**-0.5) / 2, 0.6, 0.2 + 0.8 * (1 - 2**-0.5) / 2]
    assert [factor(step) for step in (1, 2, 3, 4)] == pytest.approx(expected)
    assert factor(5) == pytest.approx(0.2)
    assert factor(99) == pytest.approx(0.2)


def test_warm_up_rises_to_one_and_the_full_rate_comes_next() -> None:
    factor = cosine(10, warmup=4)
    assert [factor(step) for step in (1, 2, 3, 4, 5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert factor(6) < 1


def test_impossible_schedules_are_refused() -> None:
    for steps, warmup in ((0, 0), (5, 5), (5, -1)):
        with pytest.raises(UserError, match="warm-up"):
            cosine(steps, warmup=warmup)
