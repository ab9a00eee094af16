"""Cells: what the done jobs say for each row and column, seed by seed, beside the paper's number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from laworder import published
from laworder.errors import UserError
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import Job
from laworder.paper.setting import Setting
from laworder.paper.spec import Absent, Ask, Column, Known, Row, Source, Table
from laworder.paper.store import result, status


@dataclass(frozen=True)
class Cell:
    """values: seed → number, or text for what is told in words; missing: seed → why there is none;
    jobs: seed → the job that the number comes from"""

    row: Row
    column: Column
    values: dict[int, float | str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    jobs: dict[int, Resolved] = field(default_factory=dict)
    exact: bool = False
    paper: published.Row | None = None

    @property
    def key(self) -> str:
        """As `--explain` takes it."""
        return f"{self.row.key}/{self.column.key}"

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.values.values() if not isinstance(value, str) and math.isfinite(value)]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.numbers) if self.numbers else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return statistics.stdev(self.numbers) if len(self.numbers) > 1 else None

    def gaps(self) -> dict[str, str]:
        """Why numbers are missing → whose: the cell's key, with the seeds where others have theirs."""
        found: dict[str, list[int]] = {}
        for seed, why in self.missing.items():
            found.setdefault(why, []).append(seed)
        every = len(self.missing) + len(self.values)
        return {why: self.key + ("" if len(seeds) == every else _named(seeds)) for why, seeds in found.items()}

    def text(self) -> str:
        """Ours, as printed: mean ± std (n); "–" where there is nothing."""
        words = sorted({value for value in self.values.values() if isinstance(value, str)})
        if words:
            return ", ".join(words)
        if self.mean is None:
            return "–"
        number = f"{self.mean:,.{self.column.digits}f}"
        if self.exact or not self.jobs:
            return number
        spread = "" if self.std is None else f" ± {self.std:.{self.column.digits}f}"
        return f"{number}{spread} (n={len(self.numbers)})"

    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper.mean


def _named(seeds: list[int]) -> str:
    return f" seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"


def sources(table: Table, setting: Setting, row: Row, column: Column) -> dict[int, Source]:
    """Seed → where the number comes from; one entry where seeds do not matter."""
    found: dict[int, Source] = {}
    asked: set[str] = set()
    for seed in setting.seeds if table.seeds else setting.seeds[:1]:
        source = table.ask(setting, row, column, seed)
        if isinstance(source, Ask):
            if source.job.label in asked:
                continue  # one run is one number, however many seeds it stands for
            asked.add(source.job.label)
        found[seed] = source
    return found


def jobs_of(table: Table, setting: Setting) -> list[Job]:
    """The jobs that give the table's numbers, each once, in the table's order."""
    found: dict[str, Job] = {}
    for row in table.rows:
        for column in table.columns:
            for source in sources(table, setting, row, column).values():
                if isinstance(source, Ask):
                    found[source.job.label] = source.job
    return list(found.values())


def cell(table: Table, setting: Setting, resolver: Resolver, row: Row, column: Column) -> Cell:
    """One cell, from whatever is done."""
    made = Cell(row, column, paper=_published(table, row, column))
    found = sources(table, setting, row, column)
    if all(isinstance(source, Known) for source in found.values()):
        made = Cell(row, column, exact=True, paper=made.paper)
    for seed, source in found.items():
        if isinstance(source, Known):
            made.values[seed] = source.reckon()
        elif isinstance(source, Absent):
            made.missing[seed] = source.why
        else:
            _read(made, seed, source, resolver)
    return made


def _read(made: Cell, seed: int, source: Ask, resolver: Resolver) -> None:
    one = resolver.resolve(source.job)
    made.jobs[seed] = one
    state = status(one)
    if state.state != "done":
        made.missing[seed] = state.why if state.state == "missing" else f"{state.state}: {state.why}"
        return
    try:
        value = source.read(result(one, source.file))
    except UserError as error:
        made.missing[seed] = str(error)
        return
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        made.missing[seed] = f"{source.file} of {one.job.label} holds no such number"
    else:
        made.values[seed] = value if isinstance(value, str) else value * source.factor


def cells(table: Table, setting: Setting, resolver: Resolver) -> Iterator[list[Cell]]:
    """Row by row."""
    for row in table.rows:
        yield [cell(table, setting, resolver, row, column) for column in table.columns]


def _published(table: Table, row: Row, column: Column) -> published.Row | None:
    if row.published is None:
        return None
    known = published.find(table=table.published, method=row.published)
    return next((r for r in known if (r.dataset, r.metric) == (column.dataset, column.metric)), None)
