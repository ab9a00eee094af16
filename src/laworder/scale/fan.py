"""`--on`: where tasks are done."""

from __future__ import annotations

import re
from collections.abc import Iterable

from laworder.errors import UserError
from laworder.scale.local import run_here
from laworder.scale.tasks import Outcome, Task, Tell, Work

PATIENCE = 1800.0


def checked_place(on: str) -> str:
    """`on`, if it can be a place."""
    if on not in ("local", "ray") and not re.fullmatch(r"(ray://)?[\w.\-\[\]:]+:\d+", on):
        raise UserError(f"on: {on!r} is no place; use local, ray, ray://HOST:10001 or HOST:6379")
    return on


def fan_out(
    tasks: Iterable[Task], work: Work, tell: Tell, *, on: str = "local", patience: float = PATIENCE
) -> dict[str, Outcome]:
    """Do all tasks.

    on: local (this process, no Ray), ray (a Ray of this machine, started for the time), ray://HOST:PORT (a cluster
        through Ray's client), or HOST:PORT (the cluster that this machine belongs to)
    patience: seconds that a task which another process holds may show no sign of life
    """
    if checked_place(on) == "local":
        return run_here(tasks, work, tell, patience=patience)
    from laworder.scale.on_ray import run_on_ray

    return run_on_ray(tasks, work, tell, address=None if on == "ray" else on, patience=patience)
