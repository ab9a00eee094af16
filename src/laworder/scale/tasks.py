"""What is to be done: tasks with needs, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Work = Callable[[Mapping[str, Any]], str]
"""Does one order. Returns "" or what went wrong; LockedError: another process is at it. It must be safe to call twice:
an order that is done already is left as it is."""


@dataclass(frozen=True)
class Task:
    """key: unique; needs: keys that must be done before; order: what the worker is told, plain JSON values, among them
    `folder`, the task's own; gpus: share of a GPU, below 1 any, from 1 on whole ones."""

    key: str
    order: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    gpus: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """failed: it ran and said why; skipped: something that it needs failed."""

    key: str
    state: Literal["done", "failed", "skipped"]
    message: str = ""


Tell = Callable[[Outcome], None]


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """Every task behind those that it needs, else in the order given; each key once."""
    by_key = {task.key: task for task in tasks}
    placed: dict[str, Task] = {}

    def place(task: Task, above: tuple[str, ...]) -> None:
        assert task.key not in above, f"{task.key} needs itself"
        if task.key in placed:
            return
        for need in task.needs:
            assert need in by_key, f"{task.key} needs {need}, which is not among the tasks"
            place(by_key[need], (*above, task.key))
        placed[task.key] = task

    for task in by_key.values():
        place(task, ())
    return list(placed.values())


class Board:
    """Who is waiting, and for whom."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.waiting: dict[str, Task] = {task.key: task for task in in_order(tasks)}
        self.outcomes: dict[str, Outcome] = {}

    def ready(self) -> list[Task]:
        """Waiting tasks whose needs are done."""
        done = {key for key, outcome in self.outcomes.items() if outcome.state == "done"}
        return [task for task in self.waiting.values() if done.issuperset(task.needs)]

    def settle(self, outcome: Outcome, tell: Tell) -> None:
        """Write an outcome down; what needed a failed task is skipped."""
        assert outcome.key not in self.outcomes, f"{outcome.key} was settled before"
        self.waiting.pop(outcome.key, None)
        self.outcomes[outcome.key] = outcome
        tell(outcome)
        if outcome.state == "done":
            return
        for task in [task for task in self.waiting.values() if outcome.key in task.needs]:
            if task.key in self.waiting:
                self.settle(Outcome(task.key, "skipped", f"needs {outcome.key}, which {outcome.state}"), tell)
