"""`laworder paper plan TABLE`: the runs behind a table, what is there, what is stale and why, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from laworder.config import option
from laworder.console import say
from laworder.paper.planning import summary
from laworder.paper.running import line
from laworder.paper.study import Options, Study
from laworder.paper.tables import ALL


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Show the runs that a table needs: done, begun, stale (and which setting, data or code changed) or missing, and
    the time that they will take on this machine, from the steps that were measured on it. Nothing is run."""

    table: str = option(ALL, "name of a table or figure, as `paper list` shows them, or all", positional=True)


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"print the plan of {config.table}"]


def run(config: Config) -> None:
    """Print the plan."""
    study = Study(config)
    found = study.plan(config.table)
    for step in found:
        say(line(step))
    for text in summary(found):
        say(text)
