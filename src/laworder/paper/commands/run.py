"""`laworder paper run TABLE`: do what is missing, here, on a Ray cluster, or one share of it."""

from __future__ import annotations

from dataclasses import dataclass

from laworder.config import option
from laworder.console import note, say
from laworder.paper.planning import Step, summary
from laworder.paper.running import carry_out, line, shard_of
from laworder.paper.study import Options, Study
from laworder.paper.tables import ALL
from laworder.scale import checked_place, parse_shard


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Do every run that a table needs and that is not there yet. Killed at any moment and started again, it goes on;
    runs that several tables need are made once. Exit code 1 where a run failed; the others are done all the same."""

    table: str = option(ALL, "name of a table or figure, as `paper list` shows them, or all", positional=True)
    on: str = option("local", "local; ray (started here for the time); ray://HOST:10001 or HOST:6379 (a cluster)")
    shard: str | None = option(None, "K/N: only the K-th of N shares, for job arrays; see the guide to the study")
    patience: float = option(
        1800.0, "how long a run that another process holds may show no sign of life", unit="s", above=0
    )


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    study, steps = _steps(config)
    return [*(line(step) for step in steps if step.status.state != "done"), *summary(steps), f"results: {study.root}"]


def run(config: Config) -> int:
    """Do it."""
    steps = _steps(config)[1]
    for text in summary(steps):
        note(text)
    outcomes = carry_out(steps, config.device, on=config.on, patience=config.patience)
    failed = [outcome for outcome in outcomes.values() if outcome.state != "done"]
    say(f"{len(outcomes) - len(failed)} runs done, {len(failed)} not; `laworder paper table` shows what came out")
    return 1 if failed else 0


def _steps(config: Config) -> tuple[Study, list[Step]]:
    checked_place(config.on)
    study = Study(config)
    found = study.plan(config.table)
    if config.shard is not None:
        found = shard_of(found, study.targets(config.table), parse_shard(config.shard))
    return study, found
