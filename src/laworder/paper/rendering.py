"""Tables as Markdown, LaTeX and CSV: ours, the paper's, the difference; what is missing is shown as missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from laworder import published
from laworder.paper.cells import Cell
from laworder.paper.setting import Setting
from laworder.paper.spec import Column, Table

MISSING = "–"


def difference(cell: Cell, setting: Setting) -> str:
    """Ours minus the paper's, signed; nothing where they do not compare."""
    value = cell.difference()
    if value is None or (setting.drawn and not cell.exact):
        return MISSING
    return f"{round(value, cell.column.digits) or 0.0:+,.{cell.column.digits}f}"  # never -0.0


def theirs(cell: Cell) -> str:
    """The paper's number, as it prints it."""
    if cell.paper is None:
        return MISSING
    if cell.paper.mean >= 10_000:
        return f"{cell.paper.mean:,.{cell.paper.digits}f}"
    return cell.paper.text()


def kinds(column: Column, table: Table) -> tuple[str, ...]:
    """The sub-columns of a column: the paper's only where it has any number there."""
    has = any((r.dataset, r.metric) == (column.dataset, column.metric) for r in published.find(table=table.published))
    return ("ours", "paper", "difference") if has else ("ours",)


def grid(table: Table, rows: Sequence[list[Cell]], setting: Setting) -> tuple[list[str], list[list[str]]]:
    """Head and body as text."""
    texts: dict[str, Callable[[Cell], str]] = {
        "ours": Cell.text,
        "paper": theirs,
        "difference": lambda cell: difference(cell, setting),
    }
    head = ["Method"]
    for column in table.columns:
        head += [f"{column.head}, {kind}" for kind in kinds(column, table)]
    body = [
        [cells[0].row.label, *(texts[kind](cell) for cell in cells for kind in kinds(cell.column, table))]
        for cells in rows
    ]
    return head, body


def notes(table: Table, rows: Sequence[list[Cell]], setting: Setting) -> list[str]:
    """How both came about, and what is missing and why."""
    paper = published.TABLES[table.published].protocol
    lines = [f"Paper: {'; '.join(paper)}.", *(f"Ours: {line}" for line in table.notes(setting))]
    gaps: dict[str, list[str]] = {}
    for cell in (cell for cells in rows for cell in cells):
        for why, where in cell.gaps().items():
            gaps.setdefault(why, []).append(where)
    for why, where in gaps.items():
        shown = ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
        lines.append(f"Missing ({why}): {shown}.")
    return lines


def title(table: Table, setting: Setting) -> str:
    seeds = f", seeds {', '.join(map(str, setting.seeds))}" if table.seeds else ""
    return f"{table.title} (the paper's table {published.TABLES[table.published].number}; scale {setting.scale}{seeds})"


def markdown(table: Table, rows: Sequence[list[Cell]], setting: Setting) -> str:
    """A Markdown table under its title, notes below."""
    head, body = grid(table, rows, setting)
    lines = [_row(head), "|---" + "|---:" * (len(head) - 1) + "|", *(_row(line) for line in body)]
    told = [f"- {line}" for line in notes(table, rows, setting)]
    return "\n".join([f"### {title(table, setting)}", "", *lines, "", *told]) + "\n"


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


_TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "{": r"\{", "}": r"\}", "$": r"\$", "~": r"\textasciitilde{}"}
_TEX |= {"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--", "×": r"$\times$", "²": r"$^2$"}
_TEX["\\"] = r"\textbackslash{}"
_TEX |= {"η": r"$\eta$", "δ": r"$\delta$", "λ": r"$\lambda$", "^": r"\textasciicircum{}", "φ": r"$\phi$"}


def tex(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(_TEX.get(c, c) for c in text)


def latex(table: Table, rows: Sequence[list[Cell]], setting: Setting) -> str:
    """A LaTeX table of booktabs, notes in its caption's place below."""
    head, body = grid(table, rows, setting)
    told = " ".join(tex(line) for line in notes(table, rows, setting))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(title(table, setting))}. {told}}}",
            rf"\label{{{table.label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(map(tex, head)) + r" \\",
            r"\midrule",
            *(" & ".join(map(tex, line)) + r" \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table, rows: Sequence[list[Cell]], setting: Setting) -> str:
    """One line a cell, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["table", "scale", "method", "dataset", "metric", "ours_mean", "ours_std", "n", "paper_mean", "paper_std"]
    writer.writerow([*head, "difference", "missing"])
    for cell in (cell for cells in rows for cell in cells):
        compares = not setting.drawn or cell.exact
        words = "; ".join(sorted({v for v in cell.values.values() if isinstance(v, str)}))
        paper = cell.paper
        found = [
            words or _full(cell.mean),
            "" if cell.exact else _full(cell.std),
            "" if cell.exact else len(cell.values),
            _full(paper.mean if paper else None),
            _full(paper.std if paper else None),
            _full(cell.difference() if compares else None),
            "; ".join(sorted(set(cell.missing.values()))),
        ]
        writer.writerow([table.key, setting.scale, cell.row.label, cell.column.dataset, cell.column.metric, *found])
    return text.getvalue()


def _full(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def explain(cell: Cell) -> list[str]:
    """Where a cell comes from: for each seed its job, and the manifests behind it."""
    lines = [f"{cell.key}: {cell.text()}" + (f"; the paper: {theirs(cell)}" if cell.paper else "")]
    for seed in sorted({*cell.values, *cell.missing}):
        value = cell.values.get(seed)
        lines.append(f"seed {seed}: {value if value is not None else 'missing, ' + cell.missing[seed]}")
        if seed in cell.jobs:
            lines += [f"  {path}" for path in cell.jobs[seed].manifests()]
    return lines
