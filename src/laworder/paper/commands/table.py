"""`laworder paper table TABLE`: ours beside the paper's, as Markdown, LaTeX and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laworder.config import option
from laworder.console import say
from laworder.errors import UserError, nearest
from laworder.paper.cells import Cell, cells
from laworder.paper.rendering import explain, latex, markdown, to_csv
from laworder.paper.spec import Table
from laworder.paper.study import Options, Study
from laworder.paper.tables import ALL, chosen
from laworder.runs import atomic_write

WRITERS = {"md": markdown, "tex": latex, "csv": to_csv}


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Print a table from the runs that are done: ours (mean ± standard deviation, n), the paper's, the difference and
    how both came about; write it as Markdown, LaTeX and CSV. Missing cells are shown as missing, with the reason."""

    table: str = option(ALL, "name of a table, as `paper list` shows them, or all", positional=True)
    format: Literal["md", "tex", "csv"] = option("md", "what is printed; all three are written")
    explain: str | None = option(None, "ROW/COLUMN: print the manifests behind that cell instead")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"write {config.table} to {config.out / 'tables'} as Markdown, LaTeX and CSV, and print it"]


def run(config: Config) -> None:
    """Write and print."""
    study = Study(config)
    for table in chosen(config.table):
        rows = list(cells(table, study.setting, study.resolver))
        if config.explain is not None:
            _explain(table, rows, config.explain)
            continue
        texts = {suffix: writer(table, rows, study.setting) for suffix, writer in WRITERS.items()}
        folder = study.root / "tables"
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            atomic_write(folder / f"{table.key}-{study.setting.scale}.{suffix}", text)
        say(texts[config.format])


def _explain(table: Table, rows: list[list[Cell]], asked: str) -> None:
    by_key = {cell.key: cell for row in rows for cell in row}
    if asked not in by_key:
        raise UserError(f"table {table.key} has no cell {asked!r}{nearest(asked, by_key)}")
    for text in explain(by_key[asked]):
        say(text)
