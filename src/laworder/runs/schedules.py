"""Learning rates as pure functions of the step: factor(k) multiplies each group's own rate at update k = 1 … K."""

from __future__ import annotations

import math
from collections.abc import Callable

from laworder.errors import UserError

Schedule = Callable[[int], float]


def constant(step: int) -> float:  # noqa: ARG001
    """factor(k) = 1."""
    return 1.0


def cosine(steps: int, *, floor: float = 0.0, warmup: int = 0) -> Schedule:
    """Linear from 0 over `warmup` updates, then half a cosine from 1 down to `floor`.

    factor(k) = k / W for k ≤ W, else f + (1 − f)·(1 + cos(π·(k − 1 − W) / (K − W))) / 2, so that the first update
    after the warm-up has the full rate. `floor` is a ratio: 1e-6 / 1e-4 for a rate of 1e-4 that ends at 1e-6.
    """
    if steps < 1 or not 0 <= warmup < steps:
        raise UserError(f"a cosine over {steps} steps needs a warm-up of 0 to {steps - 1} steps, not {warmup}")

    def factor(step: int) -> float:
        if step <= warmup:
            return step / warmup
        share = min(1.0, (step - 1 - warmup) / (steps - warmup))
        return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2

    return factor
