"""What a training is to do: how long, how often, how fast, and when it has waited long enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laworder.errors import UserError
from laworder.runs.schedules import Schedule, constant


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long, how often, how fast.

    steps:      updates in all
    seed:       of the data's order and of every draw
    accumulate: micro-batches per update
    clip:       largest norm of the gradient; None leaves it as it is (the norm is logged either way)
    schedule:   factor on every group's learning rate at update k = 1 … steps
    log_every:  updates between lines of metrics.jsonl; the last update always has one
    save_every: updates between checkpoints; the last update always has one
    eval_every: updates between evaluations, 0 for none; the last update always has one
    best:       name of the evaluated number whose best state is kept as best.safetensors
    best_mode:  whether more of it is better
    patience:   evaluations in a row without a better `best` after which training ends early; None: never
    """

    steps: int
    seed: int
    accumulate: int = 1
    clip: float | None = None
    schedule: Schedule = constant
    log_every: int = 1
    save_every: int = 500
    eval_every: int = 0
    best: str | None = None
    best_mode: Literal["max", "min"] = "max"
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every", "save_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.eval_every < 0:
            raise UserError(f"eval_every must be 0 (never) or more, not {self.eval_every}")
        if self.best_mode not in ("max", "min"):
            raise UserError(f"best_mode must be max or min, not {self.best_mode!r}")
        if self.best is not None and not self.eval_every:
            raise UserError(f"best is {self.best!r}, but nothing is evaluated: set eval_every to more than 0")
        if self.patience is not None and (self.patience < 1 or self.best is None):
            raise UserError(
                f"patience is {self.patience}: it must be at least 1, and best must name what is waited for"
            )
        if self.clip is not None and not self.clip > 0:
            raise UserError(f"clip must be above 0, or none, not {self.clip}")

    def due(self, every: int, step: int) -> bool:
        return every > 0 and (step % every == 0 or step == self.steps)

    def exhausted(self, step: int, best_step: int | None) -> bool:
        """Whether patience is at its end after update `step`: a function of what the log says, so that a resumed run
        decides as the whole one did. `best_step` is None as long as every value was NaN."""
        if self.patience is None or not self.due(self.eval_every, step) or step == self.steps:
            return False
        return (step - (best_step or 0)) // self.eval_every >= self.patience


@dataclass(frozen=True)
class Result:
    """step: updates done; resumed: those done by earlier processes; already_done: the run was finished before;
    early: patience came to its end before the last update."""

    step: int
    resumed: int
    already_done: bool = False
    early: bool = False
