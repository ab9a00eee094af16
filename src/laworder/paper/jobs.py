"""A job: a command with settings, some of which are what other jobs wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

COMMANDS = {
    "data audit": "laworder.data.commands.audit",
    "divide": "laworder.paper.divide",
    "synth train": "laworder.diffusion.train",
    "synth sample": "laworder.diffusion.sampling.command",
    "evaluate": "laworder.evaluation.command",
    "mix": "laworder.paper.mixing",
    "seg train": "laworder.segmentation.train_command",
    "seg evaluate": "laworder.segmentation.evaluate_command",
    "cases": "laworder.paper.cases",
    "profile": "laworder.paper.profiling",
}
"""Command → the module with its Config and run. Named as text: what a study needs is imported when it is needed."""

OUT = "run"
"""Inside a job's folder: where its command writes."""


@dataclass(frozen=True)
class Data:
    """Data that lies somewhere: FOLDER or FOLDER:POOL, as typed on a command line."""

    argument: str


@dataclass(frozen=True)
class File:
    """Weights that lie somewhere: a file or folder whose content counts, not its place; else a hub id, as it is."""

    argument: str


@dataclass(frozen=True)
class Job:
    """One run of one command.

    label:    what it is, whatever its settings; two versions of one thing share it: "seg train/polyps/order_01/seed 0"
    settings: dotted path → value; `Data`, `File` or `Output` where it is a path whose content counts, not its place
    work:     how much there is to do, in a unit of its command's own (epochs, steps), for estimates
    gpus:     share of a GPU that it needs where there is one
    """

    command: str
    label: str
    settings: Mapping[str, Any] = field(hash=False)
    work: float = 1.0
    gpus: float = 1.0

    def needs(self) -> Iterator[Job]:
        """The jobs whose output is used here."""
        for value in self.settings.values():
            if isinstance(value, Output):
                yield value.job


@dataclass(frozen=True)
class Output:
    """What `job` writes: its output folder, or a file or folder inside."""

    job: Job
    inside: str = ""
    pool: str = ""
