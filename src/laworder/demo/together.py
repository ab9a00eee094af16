"""Two processes at one list of runs. The runs' own locks share it out: what one has begun, the other leaves alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence

import torch

from laworder.console import note
from laworder.paper.identity import Resolved
from laworder.paper.planning import Step
from laworder.paper.running import tasks
from laworder.paper.store import status
from laworder.paper.work import perform
from laworder.scale import Outcome, Task, fan_out
from laworder.scale.local import PAUSE

DEVICE = "cpu"
PATIENCE = 600.0


def together(runs: Sequence[Resolved]) -> list[Outcome]:
    """What became of each run that was not done yet."""
    plan = [Step(one, status(one), None) for one in runs]
    todo = tasks(plan, DEVICE)
    if not todo:
        note("every run is done; nothing to train")
        return []
    helper = multiprocessing.get_context("spawn").Process(target=_silently, args=(todo,), daemon=True)
    helper.start()
    try:
        outcomes = _work(todo, tell=True)
        helper.join(2 * PAUSE)  # it looks once more, and finds nothing to do
    finally:
        helper.terminate()
        helper.join()
    return list(outcomes.values())


def _silently(todo: list[Task]) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
        _work(todo, tell=False)


def _work(todo: list[Task], *, tell: bool) -> dict[str, Outcome]:
    # Such small maps gain little from a second thread; the second core is the other process's.
    torch.set_num_threads(1)
    done = 0

    def said(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if tell:
            label = outcome.key.rpartition(" ")[0]
            note(f"[{done}/{len(todo)}] {outcome.state}: {label}{': ' + outcome.message if outcome.message else ''}")

    return fan_out(todo, perform, said, patience=PATIENCE)
