"""A command that takes a little time, can be killed anywhere, and leaves one number."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from laworder.config import option
from laworder.console import say
from laworder.errors import UserError
from laworder.runs import atomic_write

MAY_CHANGE = ("pause",)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Count to `steps`."""

    out: Path = option(meaning="folder")
    data: str = option("none", "prepared data")
    start: Path | None = option(None, "folder of a count to begin from")
    model: str = option("toy", "its name")
    seed: int = option(0, "seed")
    factor: float = option(1.0, "of the count")
    steps: int = option(3, "to count to")
    pause: float = option(0.0, "after each step")
    wrong: bool = option(False, "fail at the end")
    device: str = option("auto", "ignored")


def run(config: Config) -> None:
    """Count, going on where a killed count stopped."""
    config.out.mkdir(parents=True, exist_ok=True)
    log = config.out / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    with log.open("a") as file:
        for step in range(len(lines) + 1, config.steps + 1):
            file.write(json.dumps({"step": step}) + "\n")
            file.flush()
            time.sleep(config.pause)
    if config.wrong:
        raise UserError("the toy was told to fail")
    base = 0.0 if config.start is None else json.loads((config.start / "value.json").read_text())["value"]
    say(f"counted to {config.steps}")
    atomic_write(config.out / "value.json", json.dumps({"value": base + config.factor * config.steps + config.seed}))
    with (config.out / "finished.log").open("a") as file:
        file.write("finished\n")
