"""The shape of a table: rows, columns, and for each cell and seed where its number comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from laworder.paper.jobs import Job
from laworder.paper.setting import Setting

EVALUATION = "evaluation.json"
"""What `evaluate`, `seg evaluate` and `seg train` leave their numbers in."""


@dataclass(frozen=True)
class Ask:
    """A number that a job leaves behind.

    file: one of its results; read: the number in it (None: the job says that there is none); factor: ours → table
    """

    job: Job
    file: str
    read: Callable[[Any], float | str | None]
    factor: float = 1.0


@dataclass(frozen=True)
class Known:
    """A number that needs no run: it follows from the model alone. Reckoned where it is printed: a plan needs none."""

    reckon: Callable[[], float]


@dataclass(frozen=True)
class Absent:
    """No number is to be had in this setting, and why."""

    why: str


Source = Ask | Known | Absent


@dataclass(frozen=True)
class Row:
    """key: ours; label: as printed; published: the paper's name of it, where it has one; reference: no method, but what
    methods are held against."""

    key: str
    label: str
    published: str | None = None
    reference: bool = False


@dataclass(frozen=True)
class Column:
    """key: dataset and metric in one word; better: which way is good; digits: as printed after the point; unit: where
    the label does not say it."""

    key: str
    label: str
    dataset: str
    metric: str
    better: Literal["up", "down", ""] = ""
    digits: int = 1
    unit: str = ""

    @property
    def head(self) -> str:
        """The column's head: what, in which unit, and which way is good."""
        return self.label + (self.unit and f", {self.unit}") + {"up": " ↑", "down": " ↓", "": ""}[self.better]


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    published: its name among the published results, and the paper's label of it
    ask:       (setting, row, column, seed) → where the number comes from
    notes:     how ours differs from the paper's, in words
    seeds:     whether a cell has a number for each seed, or one in all
    """

    key: str
    title: str
    published: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    ask: Callable[[Setting, Row, Column, int], Source]
    notes: Callable[[Setting], list[str]]
    seeds: bool = True

    @property
    def label(self) -> str:
        """The paper's, as LaTeX refers to it."""
        return f"tab:{self.published}"


def across(datasets: Mapping[str, str], *measures: Column) -> tuple[Column, ...]:
    """Every measure on every data set (key → label); the measures are columns without a data set."""
    return tuple(
        replace(one, key=f"{dataset}-{one.key}", label=f"{name} {one.label}", dataset=dataset)
        for dataset, name in datasets.items()
        for one in measures
    )


def judged(job: Job | Absent, read: Callable[[Any], float | str | None], factor: float = 1.0) -> Source:
    """A number of what an evaluation wrote; where there can be no evaluation, why."""
    return job if isinstance(job, Absent) else Ask(job, EVALUATION, read, factor)


def present(found: Iterable[Job | Absent]) -> list[Job]:
    """The jobs among them."""
    return [job for job in found if isinstance(job, Job)]


def dig(*path: str) -> Callable[[Any], Any]:
    """A reader that follows keys into a JSON object; None where one is absent."""

    def read(content: Any) -> Any:
        for key in path:
            if not isinstance(content, Mapping) or key not in content:
                return None
            content = content[key]
        return content

    return read
