"""`laworder paper list`: the tables and figures, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass

from laworder import published
from laworder.console import say
from laworder.paper.figures import FIGURES
from laworder.paper.tables import TABLES


@dataclass(frozen=True, kw_only=True)
class Config:
    """List the paper's tables and figures under the names that the other `paper` commands take."""


def plan(config: Config) -> list[str]:  # noqa: ARG001 (nothing is set)
    """What `run` would do, in words."""
    return ["print the tables and figures"]


def run(config: Config) -> None:  # noqa: ARG001
    """Print them."""
    for table in TABLES.values():
        number = published.TABLES[table.published].number
        cells = len(published.find(table=table.published))
        say(f"{table.key:18} table {number:2}  {table.title} ({cells} published numbers)")
    for figure in FIGURES.values():
        made = f" (the paper's {', '.join(figure.labels)})" if figure.labels else ""
        say(f"{figure.key:18} figure    {figure.title}{made}")
