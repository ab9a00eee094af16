"""What an evaluation found, as JSON, as one table, and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laworder import published
from laworder.evaluation.beside import Beside
from laworder.evaluation.section import Row, Section
from laworder.report import Page

HEAD = ("measure", "ours", "95 % interval", "to be read against", "the paper's")
OURS = (
    "What differs from the paper in general: another generator, its size and its training; the number of images and "
    "the encoder stand in each row; ours is one run, the paper's are means over seeds with their standard deviation."
)


@dataclass(frozen=True)
class Outcome:
    """All sections of one evaluation, and what stands beside them."""

    title: str
    counts: Mapping[str, int]
    sizes: Mapping[str, str]
    sections: Sequence[Section]
    beside: Beside
    remarks: Sequence[str]
    manifest: Mapping[str, Any]

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for row in section.rows]

    @property
    def differences(self) -> list[str]:
        """Why the paper's numbers are another measurement; nothing where none is shown."""
        found = self.beside.protocols(self.rows)
        return [*found, OURS] if found else []


def cells(row: Row, beside: Beside) -> list[str]:
    """The row as it is printed."""
    value = "–" if row.value is None or not math.isfinite(row.value) else f"{row.value:.{row.digits}f}"
    known = row.interval is not None and all(math.isfinite(end) for end in row.interval)
    interval = f"{row.interval[0]:.{row.digits}f} to {row.interval[1]:.{row.digits}f}" if known and row.interval else ""
    return [row.measure, value, interval, row.beside, beside.text(row)]


def as_markdown(outcome: Outcome) -> str:
    """The one table."""
    counts = ", ".join(f"{count} {role}" for role, count in outcome.counts.items())
    lines = [f"# {outcome.title}", "", f"Pairs: {counts}.", "", _line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(cells(row, outcome.beside)) for row in outcome.rows]
    for text in (*outcome.remarks, *outcome.differences):
        lines += ["", text]
    return "\n".join(lines) + "\n"


def _line(entries: Sequence[str]) -> str:
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def as_record(outcome: Outcome) -> dict[str, Any]:
    """evaluation.json."""
    return {
        "format": 1,
        "counts": dict(outcome.counts),
        "sizes": dict(outcome.sizes),
        "remarks": list(outcome.remarks),
        "sections": {section.name: dict(section.values) for section in outcome.sections},
        "table": [
            {
                "measure": row.measure,
                "value": row.value,
                "interval_95": row.interval,
                "beside": row.beside,
                "published": [
                    {"method": c.method, "mean": c.mean, "std": c.std, "table": published.TABLES[c.table].number}
                    for c in outcome.beside.of(row)
                ],
            }
            for row in outcome.rows
        ],
        "protocol_differences": outcome.differences,
        "manifest": dict(outcome.manifest),
    }


def as_page(outcome: Outcome) -> Page:
    """evaluation.html."""
    counts = ", ".join(f"{count} {role}" for role, count in outcome.counts.items())
    words = [section.words[0] for section in outcome.sections if section.words and section.values.get("measured")]
    page = Page(title=outcome.title, summary=[f"Pairs: {counts}.", *words])
    page.section("All numbers")
    shown = any(outcome.beside.of(row) for row in outcome.rows)
    width = len(HEAD) if shown else len(HEAD) - 1
    page.table(
        HEAD[:width],
        [cells(row, outcome.beside)[:width] for row in outcome.rows],
        caption="One line a measure, with what it must be read against.",
    )
    page.text(*outcome.remarks, *outcome.differences)
    for section in outcome.sections:
        page.section(section.title)
        page.text(*section.words)
        if section.values.get("measured"):
            section.draw(page)
    page.section("How this was made")
    page.record("manifest", outcome.manifest)
    return page
