"""One table of the audit: for the terminal, for Markdown and for the page, from the same rows."""

from __future__ import annotations

import math
import textwrap
from typing import NamedTuple


class Table(NamedTuple):
    title: str
    head: list[str]
    rows: list[list[str | int]]
    caption: str


def percent(share: float, digits: int = 1) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def as_text(table: Table) -> str:
    """For the terminal: what it shows, then columns under their heads, long heads on several lines."""
    cells = [[str(c) for c in row] for row in table.rows]
    heads = [_wrapped(name, max([len(r[i]) for r in cells] or [0])) for i, name in enumerate(table.head)]
    tall = max(map(len, heads))
    lines = [
        [column[k - tall + len(column)] if k >= tall - len(column) else "" for column in heads] for k in range(tall)
    ]
    widths = [max(len(line[i]) for line in [*lines, *cells]) for i in range(len(table.head))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in [*lines, *cells]
    ]
    words = textwrap.wrap(table.caption, 100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([table.title, *words, "", *("  " + line for line in text)])


def _wrapped(name: str, width: int) -> list[str]:
    lines = [""]
    for word in name.split():
        joined = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(joined) > max(width, 9):
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def as_markdown(table: Table) -> str:
    rows = [table.head, ["---"] * len(table.head), *[[str(c) for c in row] for row in table.rows]]
    return f"{table.caption}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
