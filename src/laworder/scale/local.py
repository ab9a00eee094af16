"""In this process, one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from laworder.runs import LockedError
from laworder.scale.tasks import Board, Outcome, Task, Tell, Work

PAUSE = 2.0


def run_here(tasks: Iterable[Task], work: Work, tell: Tell, *, patience: float) -> dict[str, Outcome]:
    """Do all tasks. What another process holds is left to it and looked at again every few seconds.

    patience: seconds without a sign of life in the folder of a held task, and with nothing to do of our own, after
        which it is given up
    """
    board = Board(tasks)
    signs: dict[str, Sign] = {}
    while board.waiting:
        held: dict[str, LockedError] = {}
        before = len(board.waiting)
        for task in board.ready():
            try:
                message = work(task.order)
            except LockedError as error:
                held[task.key] = error
                signs.setdefault(task.key, Sign(task.order))
                continue
            board.settle(Outcome(task.key, "failed" if message else "done", message), tell)
        if len(board.waiting) < before:
            continue
        for key, error in held.items():
            if signs[key].silent() > patience and key in board.waiting:
                board.settle(Outcome(key, "failed", str(error)), tell)
        time.sleep(min(PAUSE, patience))
    return board.outcomes


class Sign:
    """Whether something still happens in the folder of a task that another process holds."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._folder = Path(order["folder"])
        self._last, self._since = self._newest(), time.monotonic()

    def silent(self) -> float:
        """Seconds since we last saw it change."""
        now = self._newest()
        if now != self._last:
            self._last, self._since = now, time.monotonic()
        return time.monotonic() - self._since

    def _newest(self) -> float:
        times: list[float] = []
        for path in self._folder.rglob("*"):
            try:
                times.append(path.stat().st_mtime)
            except OSError:  # a temporary file that has just been renamed
                continue
        return max(times, default=0.0)
