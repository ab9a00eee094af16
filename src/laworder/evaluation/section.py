"""What a judge hands back: numbers for the JSON, rows for the table, sentences, and how to draw itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laworder.report import Page


@dataclass(frozen=True)
class Row:
    """One line of the table.

    measure:  what was measured, in words: "FID, Inception-2015"
    value:    the number; None where there is none, and `beside` says why
    interval: where the number would fall again with other images of the same kind (95 %)
    beside:   what it must be read against: counts, a floor, a ceiling
    digits:   behind the point
    metric:   the paper's measure to print beside it, as `laworder.published` names it: fid, clip_i, mask_dice,
              mask_iou; empty where the paper has none
    """

    measure: str
    value: float | None
    interval: tuple[float, float] | None = None
    beside: str = ""
    digits: int = 3
    metric: str = ""


def _nothing(page: Page) -> None:
    """A section that is not measured draws nothing beyond its sentences."""
    del page


@dataclass(frozen=True)
class Section:
    """The result of one judge.

    name:   its key in evaluation.json
    title:  its heading on the page
    values: plain JSON: dict, list, str, int, float, bool, None
    rows:   lines of the one table
    words:  sentences for the summary on the screen, and the section's own first lines on the page
    draw:   adds tables, charts and sheets to the page, below heading, words and rows
    """

    name: str
    title: str
    values: Mapping[str, Any]
    rows: Sequence[Row] = ()
    words: Sequence[str] = ()
    draw: Callable[[Page], None] = field(default=_nothing, repr=False, compare=False)


def not_measured(name: str, title: str, remedy: str) -> Section:
    """The section of a judge that lacks an input: `remedy` is what to give, e.g. "give --judge"."""
    words = f"not measured: {remedy}"
    return Section(
        name, title, {"measured": False, "remedy": remedy}, [Row(title, None, beside=words)], [f"{title}: {words}."]
    )
