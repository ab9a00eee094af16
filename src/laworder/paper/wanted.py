"""What a name on the command line stands for: a table, a figure, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laworder.errors import UserError, nearest
from laworder.paper.cells import jobs_of
from laworder.paper.figures import FIGURES, Figure
from laworder.paper.jobs import Job
from laworder.paper.setting import Setting
from laworder.paper.spec import Table
from laworder.paper.tables import ALL, TABLES


@dataclass(frozen=True)
class Wanted:
    """Tables and figures."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()

    def jobs(self, setting: Setting) -> list[Job]:
        """The jobs whose results are read, each once."""
        found = [job for table in self.tables for job in jobs_of(table, setting)]
        found += [job for figure in self.figures for job in figure.jobs(setting)]
        return list({job.label: job for job in found}.values())


def wanted(name: str) -> Wanted:
    """What `name` stands for."""
    if name == ALL:
        return Wanted(list(TABLES.values()), list(FIGURES.values()))
    if name in TABLES:
        return Wanted(tables=[TABLES[name]])
    if name in FIGURES:
        return Wanted(figures=[FIGURES[name]])
    raise UserError(f"unknown table or figure {name!r}{nearest(name, [*TABLES, *FIGURES, ALL])}")
