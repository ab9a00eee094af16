"""`laworder reproduce RUN`: the same command on the same settings in a new folder, then a comparison to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from laworder.cli.table import find
from laworder.config import build, flatten, option
from laworder.console import note, say
from laworder.errors import UserError
from laworder.runs import Checkpoints, read_manifest, read_metrics, reproduction


@dataclass(frozen=True, kw_only=True)
class Config:
    """Run a finished run again from its manifest, and say whether losses and weights came out the same. Exit code 0 if
    every bit agrees, 1 if not."""

    run: Path = option(meaning="folder of the run", positional=True)
    out: Path | None = option(None, "folder of the new run; default: the old one's name with -again")


def plan(config: Config) -> list[str]:
    told = reproduction(config.run)
    return [
        *(f"mind: {line}" for line in told.differs),
        f"run `{told.kind}` with the settings of {config.run} into {_target(config)}",
        "compare every logged number and every weight",
    ]


def run(config: Config) -> int:
    told = reproduction(config.run)
    if read_manifest(config.run).outcome != "done":
        raise UserError(f"{config.run} is not finished; finish it first with its own command")
    for line in told.differs:
        note(f"mind: {line}")
    target = _target(config)
    _run_again(told.kind, {**told.config, "out": str(target)})
    same_data = read_manifest(target).data == told.data
    lines = compare(config.run, target)
    if not same_data:
        lines.append("the data are not those of the first run")
    for line in lines:
        say(line)
    if not lines:
        say(f"{target} equals {config.run}: every logged number and every weight")
    return 1 if lines else 0


def _target(config: Config) -> Path:
    return config.out or config.run.with_name(config.run.name + "-again")


def _run_again(kind: str, settings: dict[str, Any]) -> None:
    command, rest = find(kind.split())
    assert not rest, "a run's kind is the name of its command"
    module = command.load()
    module.run(build(module.Config, flatten(settings)))


def compare(first: Path, second: Path) -> list[str]:
    """What differs between two runs of one kind; nothing where they agree to the bit."""
    found: list[str] = []
    logs = [list(read_metrics(folder / "metrics.jsonl")) for folder in (first, second)]
    if len(logs[0]) != len(logs[1]):
        found.append(f"{first} logged {len(logs[0])} steps, {second} {len(logs[1])}")
    for one, other in zip(*logs, strict=False):
        if one != other:
            keys = [key for key in one if one[key] != other.get(key)]
            found.append(f"step {one['step']} is the first that differs, in {', '.join(keys)}")
            break
    states = [Checkpoints(folder / "checkpoints").latest() for folder in (first, second)]
    if None in states:
        found.append("a final checkpoint is missing")
        return found
    weights = [_tensors(state.state["modules"]) for state in states if state is not None]
    unequal = [name for name in weights[0] if not _equal(weights[0][name], weights[1].get(name))]
    if unequal:
        found.append(f"{len(unequal)} of {len(weights[0])} tensors differ, first {unequal[0]}")
    return found


def _tensors(modules: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {f"{module}.{name}": tensor for module, state in modules.items() for name, tensor in state.items()}


def _equal(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
