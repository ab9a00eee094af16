"""Objectives by name, and the rows of the paper's ablation as named settings."""

from __future__ import annotations

from typing import Any, Final

from laworder.errors import UserError, nearest
from laworder.law.base import Objective
from laworder.law.distillation import Distillation
from laworder.law.learned import LAW
from laworder.law.objectives import ConstantWeight, RatioPrior, Uniform
from laworder.law.plus import LawPlus

OBJECTIVES: Final[dict[str, type[Objective]]] = {
    "uniform": Uniform,
    "constant": ConstantWeight,
    "ratio": RatioPrior,
    "distillation": Distillation,
    "law": LAW,
    "law_plus": LawPlus,
}
"""Name → class. A new weighting is one class and one line here."""

ABLATION: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "law_no_norm": ("law", {"normalise": False, "w_min": None, "dice_weight": 0.0}),
    "law_norm": ("law", {"w_min": None, "dice_weight": 0.0}),
    "law_norm_min": ("law", {"dice_weight": 0.0}),
    "law_no_max": ("law", {"w_max": None}),
}
"""The rows of Table 8 between "Adaptive Distillation" (`distillation`) and LAW (`law`), in its order, and its last.

The table names the minimum clamp alone as a step, so the maximum clamp is taken to stand in every row but the last
(without normalisation it cannot bind: w_adapt ≤ 1 + γ).
"""


def objective(name: str, *, channels: int, **settings: Any) -> Objective:
    """An objective by name: `objective("law", channels=4, gamma=0.3)`. Rows of `ABLATION` are names as well."""
    kind, preset = ABLATION.get(name, (name, {}))
    if kind not in OBJECTIVES:
        raise UserError(f"unknown objective {name!r}{nearest(name, list_objectives())}")
    try:
        return OBJECTIVES[kind](channels=channels, **{**preset, **settings})
    except TypeError as error:
        raise UserError(f"objective {name!r}: {error}") from error


def list_objectives() -> list[str]:
    """All names that `objective` knows."""
    return [*OBJECTIVES, *ABLATION]
