"""The study in words, from its cells alone."""

from __future__ import annotations

from collections.abc import Sequence

from laworder.paper.cells import Cell
from laworder.paper.setting import Setting
from laworder.paper.spec import Column, Table

SCALES = {
    "demo": "Everything here was made from drawn MR pictures, which stand where the paper has polyps, by networks as "
    "small as can be: the numbers show that the parts work, and say nothing about patients or about the paper.",
    "small": "Real data, with a compact diffusion model instead of Stable Diffusion: numbers about synthetic images "
    "compare with each other, and with the paper's only in their order.",
    "paper": "Real data, and the paper's settings as far as it states them.",
}


def summary(tables: Sequence[tuple[Table, list[list[Cell]]]], setting: Setting) -> list[str]:
    """The lead: what was studied, how much of it is there, and what came out, table by table."""
    found = [cell for _, rows in tables for row in rows for cell in row if not cell.exact]
    open_ = [cell for cell in found if cell.jobs]
    full = sum(not cell.missing for cell in open_)
    seeds = ", ".join(map(str, setting.seeds))
    count = f"{full} of the {len(open_)} cells that can be measured in this setting are complete (seeds {seeds})."
    if len(open_) < len(found):
        count += f" {len(found) - len(open_)} more need data, weights or a scale that were not given: see the notes."
    told = [sentence(table, rows, setting) for table, rows in tables]
    return [SCALES[setting.scale], count, *(line for line in told if line)]


def sentence(table: Table, rows: Sequence[Sequence[Cell]], setting: Setting) -> str:
    """Who is best by the table's first measured column, and how that agrees with the paper."""
    for index, column in enumerate(table.columns):
        cells = [row[index] for row in rows if _ranks(row[index])]
        if column.better and len(cells) > 1:
            return f"{table.title}: {_ranked(cells, column)}{'' if setting.drawn else _beside(cells, column)}."
    return ""


def _ranks(cell: Cell) -> bool:
    return cell.mean is not None and not cell.exact and not cell.row.reference


def _ranked(cells: Sequence[Cell], column: Column) -> str:
    up = column.better == "up"
    order = sorted(cells, key=_mean, reverse=up)
    best, worst = order[0], order[-1]
    word = "highest" if up else "lowest"
    return f"{column.label} is {word} for {best.row.label}, {best.text()}; {worst.row.label} has {worst.text()}"


def _beside(cells: Sequence[Cell], column: Column) -> str:
    both = [(cell, cell.paper.mean) for cell in cells if cell.paper is not None]
    if len(both) < 2:
        return ""
    up = column.better == "up"
    theirs = max(both, key=lambda pair: pair[1] if up else -pair[1])[0]
    pairs = [(a, b) for i, a in enumerate(both) for b in both[i + 1 :]]
    same = sum((_mean(a) > _mean(b)) == (x > y) for (a, x), (b, y) in pairs)
    gap = sum(_mean(cell) - paper for cell, paper in both) / len(both)
    return (
        f". In the paper it is {theirs.row.label}; of {len(pairs)} pairs of methods, {same} stand as in the paper, "
        f"and ours lie {abs(gap):.{column.digits}f} {'above' if gap >= 0 else 'below'} the paper's on average"
    )


def _mean(cell: Cell) -> float:
    assert cell.mean is not None, "only cells with a number are ranked"
    return cell.mean
