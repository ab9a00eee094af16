"""What it takes to run a run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laworder.runs.manifest import git_state, read_manifest, versions


@dataclass(frozen=True)
class Reproduction:
    """kind, config, seeds, data: to start the same run; command: how it was started then.

    differs: one line for each thing that is not as it was then and may change the result.
    """

    kind: str
    command: list[str]
    config: dict[str, Any]
    seeds: dict[str, int]
    data: dict[str, str]
    differs: list[str]


def reproduction(folder: str | Path) -> Reproduction:
    """Read a run's manifest and compare its surroundings with today's."""
    old = read_manifest(folder)
    today = versions()
    differs = [
        f"{name} was {then}, is {today.get(name, 'not installed')}"
        for name, then in old.versions.items()
        if today.get(name) != then
    ]
    commit = git_state()
    if old.git != commit:
        differs.append(f"the code was {_describe(old.git)}, is {_describe(commit)}")
    if old.resumptions:
        differs.append(f"the run was resumed {len(old.resumptions)} times; this one will not be")
    return Reproduction(
        kind=old.kind, command=old.command, config=old.config, seeds=old.seeds, data=old.data, differs=differs
    )


def _describe(git: dict[str, Any] | None) -> str:
    if git is None:
        return "an installed package"
    return f"commit {git['commit'][:12]}{' with changes' if git['dirty'] else ''}"
