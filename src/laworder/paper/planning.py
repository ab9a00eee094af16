"""What there is to do for a table, what is there, why something does not count, and how long the rest will take."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laworder.paper.identity import Resolved
from laworder.paper.store import Status, read_record, status


@dataclass(frozen=True)
class Step:
    """One job of a plan. seconds: how long it will take here; None where nothing like it was ever timed here."""

    one: Resolved
    status: Status
    seconds: float | None


@dataclass(frozen=True)
class Timed:
    """One finished job, as the estimates see it."""

    command: str
    label: str
    config: dict[str, Any]
    work: float
    seconds: float


def steps(resolved: Sequence[Resolved], root: Path, device: dict[str, Any]) -> list[Step]:
    """The plan, in an order in which it can be done. `device` as manifests describe it: times of others say nothing."""
    known = timed(root, device)
    found: list[Step] = []
    undone: set[str] = set()
    for one in resolved:
        state = status(one)
        if state.state == "done" and any(need.key in undone for need in one.needs):
            state = Status("stale", "what it builds upon has to be made again")
        if state.state != "done":
            undone.add(one.key)
        found.append(Step(one, state, 0.0 if state.state == "done" else estimate(one, known)))
    return found


def timed(root: Path, device: dict[str, Any]) -> list[Timed]:
    """Every finished job of the study on this kind of device."""
    found: list[Timed] = []
    for path in (root / "jobs").rglob("job.json"):
        record = read_record(path.parent)
        if record is None or record.get("outcome") != "done" or not _alike(record.get("device", {}), device):
            continue
        found.append(
            Timed(
                record["command"],
                record["label"],
                record["identity"]["config"],
                float(record["work"]),
                float(record["seconds"]),
            )
        )
    return found


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two devices take the same time. A GPU does not mind how many threads feed it."""
    same = ("type", "name") if other.get("type") == "cuda" else ("type", "name", "threads")
    return all(one.get(key) == other.get(key) for key in same)


def estimate(one: Resolved, known: Sequence[Timed]) -> float | None:
    """Seconds: the median, scaled by the work, over the finished jobs most like it.

    First those with the same settings but the seed, then those of the same command, model and size.
    """
    mine = one.identity.config
    alike = [
        lambda t: _without(t.config, "seed") == _without(mine, "seed"),
        lambda t: all(t.config.get(key) == mine.get(key) for key in ("model", "backbone", "objective", "size", "data")),
        lambda t: all(t.config.get(key) == mine.get(key) for key in ("model", "backbone", "size")),
    ]
    same = [t for t in known if t.command == one.job.command]
    for test in alike:
        rates = [t.seconds / t.work for t in same if test(t)]
        if rates:
            return statistics.median(rates) * one.job.work
    return None


def _without(config: dict[str, Any] | Any, key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def summary(plan: Sequence[Step]) -> list[str]:
    """The plan in a few lines: counts, then the time."""
    states = ("done", "begun", "stale", "failed", "missing")
    counts = {state: sum(step.status.state == state for step in plan) for state in states}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    waiting = [step for step in plan if step.status.state != "done"]
    if not waiting:
        return [f"{len(plan)} runs: all done"]
    known = [step.seconds for step in waiting if step.seconds is not None]
    line = f"{len(plan)} runs: {told}"
    if not known:
        return [line, f"time: unknown for all {len(waiting)}, nothing like them was timed on this machine yet"]
    rest = f", and {len(waiting) - len(known)} of unknown length" if len(known) < len(waiting) else ""
    return [line, f"time on this machine, one after the other: about {duration(sum(known))}{rest}"]
