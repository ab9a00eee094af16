"""Every table of the paper that can be made, by our name of it."""

from __future__ import annotations

from collections.abc import Sequence

from laworder.errors import UserError, nearest
from laworder.paper.quality import COMPONENTS, MATCHED, UNSEEN
from laworder.paper.runtime import RUNTIME
from laworder.paper.segmentation import ATTENTION, COMPARISON, STAGES
from laworder.paper.spec import Table
from laworder.paper.synthesis import DOSE, DOWNSTREAM, RECOVERY

ALL = "all"
TABLES: dict[str, Table] = {
    table.key: table
    for table in (
        *(MATCHED, UNSEEN, RECOVERY, DOWNSTREAM, DOSE, COMPONENTS),
        *(COMPARISON, ATTENTION, RUNTIME, STAGES),
    )
}


def chosen(name: str) -> Sequence[Table]:
    """The table of that name, or all."""
    if name == ALL:
        return list(TABLES.values())
    if name not in TABLES:
        raise UserError(f"unknown table {name!r}{nearest(name, [*TABLES, ALL])}")
    return [TABLES[name]]
