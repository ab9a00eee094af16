"""Doing what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from laworder.console import note
from laworder.paper.identity import Resolved
from laworder.paper.planning import Step, duration
from laworder.paper.store import order_of
from laworder.paper.work import perform
from laworder.runs import Stopped
from laworder.scale import Outcome, Task, fan_out, share_of


def tasks(plan: Sequence[Step], device: str) -> list[Task]:
    """A task for each job that is not done. What is done already is needed no more."""
    open_ = {step.one.key: step for step in plan if step.status.state != "done"}
    return [
        Task(
            key=key,
            order=order_of(step.one, device),
            needs=tuple(need.key for need in step.one.needs if need.key in open_),
            gpus=step.one.job.gpus,
        )
        for key, step in open_.items()
    ]


def shard_of(plan: Sequence[Step], targets: Sequence[Resolved], shard: tuple[int, int]) -> list[Step]:
    """The steps of one share: its part of the targets, and all that they need.

    What several shares need is made by whichever comes first; the others wait for it. Shares are a function of the
    targets alone, not of what is done, so that shares which start at different times still fit together.
    """
    mine = set(share_of({one.key: one.job.work * one.job.gpus for one in targets}, shard))
    wanted: set[str] = set()

    def want(one: Resolved) -> None:
        wanted.add(one.key)
        for need in one.needs:
            want(need)

    for one in targets:
        if one.key in mine:
            want(one)
    return [step for step in plan if step.one.key in wanted]


def carry_out(plan: Sequence[Step], device: str, *, on: str, patience: float) -> dict[str, Outcome]:
    """Do the plan, telling of each job as it ends, and of the end where somebody stops it."""
    todo = tasks(plan, device)
    told = 0

    def tell(outcome: Outcome) -> None:
        nonlocal told
        told += 1
        text = {"done": "done", "failed": "FAILED", "skipped": "skipped"}[outcome.state]
        note(f"[{told}/{len(todo)}] {text}: {outcome.key}{': ' + outcome.message if outcome.message else ''}")

    try:
        return fan_out(todo, perform, tell, on=on, patience=patience) if todo else {}
    except (Stopped, KeyboardInterrupt):
        note(f"stopped with {told} of {len(todo)} runs done; the same command goes on from here")
        raise


def line(step: Step) -> str:
    """A step as a plan lists it."""
    text = f"{step.status.state:8} {step.one.job.label}"
    if step.status.state == "done":
        return text
    why = f" ({step.status.why})" if step.status.why else ""
    return f"{text}{why}, {duration(step.seconds)}"
