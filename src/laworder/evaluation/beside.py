"""The paper's numbers beside ours, and in words why they are not the same measurement."""

from __future__ import annotations

from dataclasses import dataclass

from laworder import published
from laworder.evaluation.section import Row

TABLES = {
    ("fid", "train"): "law_image_quality",
    ("clip_i", "train"): "law_image_quality",
    ("fid", "held-out"): "law_image_quality_heldout",
    ("clip_i", "held-out"): "law_image_quality_heldout",
    ("mask_dice", "train"): "law_mask_recovery",
    ("mask_iou", "train"): "law_mask_recovery",
    ("mask_dice", "held-out"): "law_mask_recovery",
    ("mask_iou", "held-out"): "law_mask_recovery",
}
"""Measure and protocol → the paper's table of it."""


@dataclass(frozen=True)
class Beside:
    """The paper's side of the table: `dataset` as the paper names it, None where it has none like ours."""

    dataset: str | None
    protocol: str

    def of(self, row: Row) -> list[published.Row]:
        """The paper's cells of the row's measure, in its order of methods."""
        table = TABLES.get((row.metric, self.protocol))
        if self.dataset is None or table is None:
            return []
        return published.find(table=table, dataset=self.dataset, metric=row.metric)

    def text(self, row: Row) -> str:
        """`LAW 52.32 ± 0.70; ControlNet …`, the paper's own method first."""
        cells = sorted(self.of(row), key=lambda cell: cell.method != "LAW")
        return "; ".join(f"{cell.method} {cell.text()}" for cell in cells)

    def protocols(self, rows: list[Row]) -> list[str]:
        """How the paper's numbers in these rows came about, each table once."""
        names = dict.fromkeys(TABLES[row.metric, self.protocol] for row in rows if self.of(row))
        return [f"The paper's {published.TABLES[n].title}: {'; '.join(published.TABLES[n].protocol)}." for n in names]
