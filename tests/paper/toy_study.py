"""A study of toy jobs, as module and as program: `python toy_study.py FOLDER` does all of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from laworder.paper.cells import jobs_of
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import Job, Output
from laworder.paper.planning import Step, steps
from laworder.paper.running import carry_out
from laworder.paper.setting import Setting
from laworder.paper.spec import Ask, Column, Row, Source, Table, dig
from laworder.runs.manifest import describe_device

COMMANDS = {"toy": "toy_command"}
ROWS = (Row("unet", "nnUNet (U-Net, 31 M)", "nnUNet"), Row("order_01", "ORDER{0,1}", "ORDER{0,1}"), Row("own", "Own"))
COLUMNS = (
    Column("polyps-dice", "Polyps Dice", "polyps", "dice", "up"),
    Column("brisc-dice", "BRISC Dice", "brisc", "dice", "up"),
)


def job(row: str, dataset: str, seed: int, **settings: Any) -> Job:
    """One count, from a start that all seeds of a data set share."""
    start = Job("toy", f"start/{dataset}", {"steps": 2, **settings})
    values = {"start": Output(start), "model": row, "seed": seed, "steps": 4, "factor": 10.0, **settings}
    return Job("toy", f"toy/{dataset}/{row}/seed {seed}", values, work=4)


def table(**settings: Any) -> Table:
    """Six cells over them."""

    def ask(setting: Setting, row: Row, column: Column, seed: int) -> Source:  # noqa: ARG001
        return Ask(job(row.key, column.dataset, seed, **settings), "value.json", dig("value"))

    return Table(
        key="toy",
        title="Toy",
        published="segmentation_standard",
        rows=ROWS,
        columns=COLUMNS,
        ask=ask,
        notes=lambda setting: [f"scale {setting.scale}"],
    )


def resolver(root: Path) -> Resolver:
    return Resolver(root, commands=COMMANDS, device="cpu")


def resolved(root: Path, setting: Setting, **settings: Any) -> list[Resolved]:
    return resolver(root).every(jobs_of(table(**settings), setting))


def plan(root: Path, setting: Setting, **settings: Any) -> list[Step]:
    return steps(resolved(root, setting, **settings), root, describe_device("cpu"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    done = carry_out(plan(Path(sys.argv[1]), Setting(seeds=(0, 1)), pause=0.02), "cpu", on="local", patience=20)
    sys.exit(any(outcome.state != "done" for outcome in done.values()))
