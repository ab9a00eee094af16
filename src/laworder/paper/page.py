"""The study's page: a page whose numbers open what is behind them, and whose pictures carry their masks."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from laworder.paper.cells import Cell
from laworder.paper.identity import Resolved
from laworder.paper.rendering import MISSING, difference, notes, theirs
from laworder.paper.setting import Setting
from laworder.paper.spec import Table
from laworder.paper.store import read_record
from laworder.report import Page, Sheet, picture_uri
from laworder.report.pictures import TRUTH
from laworder.runs.manifest import NAME

MANIFEST = NAME


@dataclass(frozen=True)
class Shown:
    """A picture and its mask, of one size."""

    name: str
    image: UInt8[np.ndarray, "h w 3"]
    mask: Bool[np.ndarray, "h w"]


class StudyPage(Page):
    """Tables with manifests behind their numbers, and sheets with a slider for the mask."""

    def __init__(self, *, title: str, summary: Sequence[str]) -> None:
        super().__init__(title=title, summary=summary)
        self._behind: dict[str, Resolved] = {}
        self.sheets: dict[str, Sheet] = {}
        """Sheets of pictures by name, for those who want files of them."""

    def study_table(self, table: Table, rows: Sequence[list[Cell]], setting: Setting, *, caption: str) -> None:
        """Ours, below it the paper's and the difference; a click on ours tells where it comes from.

        A column in which nothing can be measured in this setting is left to the notes.
        """
        kept = [i for i in range(len(table.columns)) if any(row[i].jobs or row[i].exact for row in rows)]
        if kept:
            self._grid(table, [[row[i] for i in kept] for row in rows], setting, caption)
        else:
            self.text("Nothing in this table can be measured as the study is set; the notes say what to give.")
        told = "".join(f"<li>{_text(line)}</li>" for line in notes(table, rows, setting))
        self._parts.append(f"<ul class='notes'>{told}</ul>")

    def _grid(self, table: Table, rows: Sequence[Sequence[Cell]], setting: Setting, caption: str) -> None:
        heads = "".join(f"<th scope='col' class='number'>{_text(cell.column.head)}</th>" for cell in rows[0])
        head = f"<th scope='col'>method</th>{heads}"
        body = "".join(self._row(table, row, setting) for row in rows)
        self._parts.append(
            f"<div class='wide' tabindex='0' role='region' aria-label='{_quoted(caption)}'><table>"
            f"<caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _row(self, table: Table, cells: Sequence[Cell], setting: Setting) -> str:
        parts = [f"<th scope='row'>{_text(cells[0].row.label)}</th>"]
        for cell in cells:
            beside = ""
            if cell.paper is not None:
                gap = difference(cell, setting)
                known = f"paper {theirs(cell)}" + ("" if gap == MISSING else f", {gap}")
                beside = f"<div class='paper'>{_text(known)}</div>"
            parts.append(f"<td class='number'>{self._number(table, cell)}{beside}</td>")
        return f"<tr>{''.join(parts)}</tr>"

    def _number(self, table: Table, cell: Cell) -> str:
        text = _text(cell.text())
        if not cell.jobs and not cell.missing:
            return text  # it follows from the model alone
        anchor = f"{table.key}-{cell.key}".replace("/", "-")
        what = f"{cell.row.label}, {cell.column.label}"
        return (
            f"<button class='n' popovertarget='{_quoted(anchor)}' aria-label='{_quoted(f'{what}: {cell.text()}')}'>"
            f"{text}</button><div popover id='{_quoted(anchor)}' role='dialog' aria-label='{_quoted(what)}'>"
            f"<strong>{_text(what)}</strong><ul>{self._origins(cell)}</ul></div>"
        )

    def _origins(self, cell: Cell) -> str:
        lines: list[str] = []
        for seed in sorted({*cell.values, *cell.missing}):
            value = cell.values.get(seed)
            text = f"missing: {cell.missing[seed]}" if value is None else f"{value}"
            lines.append(f"<li>seed {seed}: {_text(text)}{self._links(cell.jobs.get(seed))}</li>")
        return "".join(lines)

    def _links(self, job: Resolved | None) -> str:
        if job is None or not (job.folder / "job.json").is_file():
            return ""
        return "".join(f"<br><a href='#{self._record_of(one)}'>{_text(one.job.label)}</a>" for one in chain(job))

    def _record_of(self, one: Resolved) -> str:
        anchor = f"run-{one.identity.digest[:12]}"
        self._behind[anchor] = one
        return anchor

    def records(self) -> None:
        """Every run that a number on this page comes from: its record and its manifest."""
        for anchor, one in self._behind.items():
            content = {"job.json": read_record(one.folder)}
            if (one.out / MANIFEST).is_file():
                content[MANIFEST] = json.loads((one.out / MANIFEST).read_text(encoding="utf-8"))
            text = _text(json.dumps(content, indent=1, ensure_ascii=False))
            self._parts.append(
                f"<details><summary>{_text(one.job.label)} <code>{anchor[4:]}</code></summary>"
                f"<pre id='{anchor}' tabindex='0'>{text}</pre></details>"
            )

    def overlays(self, groups: Mapping[str, Sequence[Shown]], *, caption: str) -> None:
        """Named groups of pictures under one slider that fades their masks in and out."""
        self._figures += 1
        name = f"slider-{self._figures}"
        parts = []
        for title, pictures in groups.items():
            tiles = "".join(
                f"<div class='pair'><img src='{picture_uri(one.image)}' alt='{_quoted(f'{title}: {one.name}')}'>"
                f"<img class='mask' src='{mask_uri(one.mask)}' alt=''></div>"
                for one in pictures
            )
            parts.append(f"<h3>{_text(title)}</h3><div class='pairs'>{tiles}</div>")
        self._parts.append(
            f"<figure class='overlay'><label for='{name}'>mask <input id='{name}' type='range' min='0' max='100' "
            f"value='50' aria-label='how strongly the masks are shown'></label>{''.join(parts)}"
            f"<figcaption>Figure {self._figures}. {_text(caption)}</figcaption></figure>"
        )

    def keep(self, name: str, sheet: Sheet) -> None:
        """A sheet that becomes a file of that name."""
        assert name not in self.sheets, f"two sheets are called {name}"
        self.sheets[name] = sheet

    def pictures(self, name: str, sheet: Sheet, *, caption: str) -> None:
        """A sheet on the page, and kept for a file."""
        self.keep(name, sheet)
        rows: list[list[tuple[str, str]]] = []
        for index, row in enumerate(sheet.rows):
            heads = [sheet.columns[i] if sheet.columns else f"picture {i + 1}" for i in range(len(row))]
            where = f"{sheet.names[index]}: " if sheet.names else ""
            # Gray ones may be masks or maps, which JPEG would blur.
            uris = [picture_uri(one, exact=bool((one == one[..., :1]).all())) for one in row]
            rows.append([(uri, where + head) for uri, head in zip(uris, heads, strict=True)])
        self.sheet(rows, names=sheet.columns, row_names=sheet.names, caption=caption)

    def findings(self, found: Sequence[Mapping[str, str]]) -> None:
        """What an audit says, the grave first as it comes."""
        lines = "".join(f"<li><b>{_text(one['severity'])}</b> {_text(one['text'])}</li>" for one in found)
        self._parts.append(f"<ul class='findings'>{lines}</ul>" if lines else "<p>The audit found nothing.</p>")

    def html(self) -> str:
        """The whole page, with its own style and script inside."""
        room = resources.files("laworder.paper")
        style, script = (room.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        page = super().html()
        return page.replace("</head>", f"<style>{style}</style></head>", 1).replace(
            "</body>", f"<script>{script}</script></body>", 1
        )


def chain(job: Resolved) -> list[Resolved]:
    """A job and all that it was built upon, each once."""
    found = {job.key: job}
    for need in job.needs:
        found |= {one.key: one for one in chain(need)}
    return list(found.values())


def mask_uri(mask: Bool[np.ndarray, "h w"]) -> str:
    """A mask as a coloured PNG, transparent where it is not."""
    picture = Image.fromarray(mask.astype(np.uint8), mode="P")
    picture.putpalette([0, 0, 0, *TRUTH])
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", transparency=0, optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _text(value: str) -> str:
    return html.escape(value, quote=False)


def _quoted(value: str) -> str:
    return html.escape(value, quote=True)
