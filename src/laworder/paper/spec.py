"""The shape of a table: rows, columns, and for each cell and seed where its number comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from laworder.paper.jobs import Job
from laworder.paper.setting import Setting


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
    """A number that needs no run: it follows from the model alone."""

    value: float


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
    """key: dataset and metric in one word; better: which way is good; digits: as printed after the point."""

    key: str
    label: str
    dataset: str
    metric: str
    better: Literal["up", "down", ""] = ""
    digits: int = 1


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    number:    the paper's label of it; published: its name among the published results
    ask:       (setting, row, column, seed) → where the number comes from
    notes:     how ours differs from the paper's, in words
    seeds:     whether a cell has a number for each seed, or one in all
    """

    key: str
    title: str
    label: str
    published: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    ask: Callable[[Setting, Row, Column, int], Source]
    notes: Callable[[Setting], list[str]]
    seeds: bool = True


def dig(*path: str) -> Callable[[Any], Any]:
    """A reader that follows keys into a JSON object; None where one is absent."""

    def read(content: Any) -> Any:
        for key in path:
            if not isinstance(content, Mapping) or key not in content:
                return None
            content = content[key]
        return content

    return read
