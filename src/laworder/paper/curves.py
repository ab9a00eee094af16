"""The figures made of numbers: Dice against lesion size, Dice against the number of synthetic images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laworder.paper.cells import Cell, cells, sources
from laworder.paper.identity import Resolver
from laworder.paper.jobs import Job
from laworder.paper.page import StudyPage
from laworder.paper.segmentation import COMPARISON
from laworder.paper.setting import Setting
from laworder.paper.spec import EVALUATION, Ask, Column, Row, Table
from laworder.paper.store import done, result
from laworder.paper.synthesis import DOSE
from laworder.report import Series, line_chart
from laworder.segmentation.report import size_chart


def _asked(table: Table, setting: Setting, row: Row, column: Column) -> list[Job]:
    return [source.job for source in sources(table, setting, row, column).values() if isinstance(source, Ask)]


def _evaluations(setting: Setting) -> dict[str, list[Job]]:
    column = next(column for column in COMPARISON.columns if column.key == "polyps-dice")
    return {row.label: _asked(COMPARISON, setting, row, column) for row in COMPARISON.rows}


def sizes(setting: Setting) -> list[Job]:
    """The evaluations of every segmenter on polyps."""
    return [job for jobs in _evaluations(setting).values() for job in jobs]


def draw_sizes(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    """Bars and their table."""
    found: dict[str, Any] = {}
    for label, jobs in _evaluations(setting).items():
        results = [result(one, EVALUATION) for one in done(jobs, resolver)]
        if results:
            found[label] = by_size(results)
    if found:
        size_chart(page, found)
    return bool(found)


def by_size(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Dice by lesion size over several seeds: each bin's mean over all their images."""
    bins: dict[tuple[float, float], list[tuple[int, float]]] = {}
    for found in results:
        for one in found["model"]["dice_by_lesion_size"]:
            bins.setdefault((one["low"], one["high"]), []).append((one["images"], one["mean"]))
    rows = []
    for (low, high), parts in sorted(bins.items()):
        images = sum(count for count, _ in parts)
        if images:
            mean = sum(count * value for count, value in parts if count) / images
            rows.append({"low": low, "high": high, "images": images, "mean": mean})
    return {"dice_by_lesion_size": rows}


def doses(setting: Setting) -> list[Job]:
    """The evaluations behind the dose table."""
    return [job for row in DOSE.rows for job in _asked(DOSE, setting, row, DOSE.columns[0])]


def draw_doses(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    """Ours with its spread; the paper's beside it where they compare."""
    rows = [row[0] for row in cells(DOSE, setting, resolver)]
    found = [cell for cell in rows if cell.mean is not None]
    if not found:
        return False
    means = [cell.mean or 0.0 for cell in found]
    spread = [cell.std or 0.0 for cell in found]
    bands = [(mean - std, mean + std) for mean, std in zip(means, spread, strict=True)]
    lines = [Series("ours", [_dose(cell) for cell in found], means, bands if any(spread) else None)]
    if not setting.drawn:
        known = [(cell, cell.paper) for cell in rows if cell.paper is not None]
        lines.append(Series("paper", [_dose(cell) for cell, _ in known], [paper.mean for _, paper in known]))
    page.figure(
        line_chart(lines, x_label="synthetic images (the paper's count)", y_label="mDice, %", title="Dose curve"),
        caption="Dice on held-out real images against the number of synthetic ones; the band is ± one standard "
        "deviation over seeds.",
    )
    return True


def _dose(cell: Cell) -> float:
    return float(cell.row.key) if cell.row.key.isdigit() else 0.0
