"""Every table of the paper that can be made, by our name of it."""

from __future__ import annotations

from collections.abc import Sequence

from laworder import published
from laworder.errors import UserError, nearest
from laworder.paper.runtime import RUNTIME
from laworder.paper.segmentation import ATTENTION, COMPARISON, STAGES
from laworder.paper.spec import Table
from laworder.paper.synthesis import DOSE, DOWNSTREAM, RECOVERY

ALL = "all"
TABLES: dict[str, Table] = {
    table.key: table for table in (RECOVERY, DOWNSTREAM, DOSE, COMPARISON, ATTENTION, RUNTIME, STAGES)
}


def chosen(name: str) -> Sequence[Table]:
    """The table of that name, or all."""
    if name == ALL:
        return list(TABLES.values())
    if name not in TABLES:
        raise UserError(f"unknown table {name!r}{nearest(name, [*TABLES, ALL])}")
    return [TABLES[name]]


def not_made() -> list[str]:
    """The paper's tables that nothing here makes yet, by their names among the published numbers."""
    made = {table.published for table in TABLES.values()}
    return [name for name in published.TABLES if name not in made]
