"""A page: summary first, then sections of text, tables, figures and picture sheets. Everything is inside the file."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from laworder._version import __version__

Cell = str | int | float


class Page:
    """An HTML page under construction. Text is escaped; figures are this package's own SVG and data URIs."""

    def __init__(self, *, title: str, summary: Sequence[str]) -> None:
        self.title = title
        self._parts: list[str] = [f"<p class='lead'>{html.escape(line)}</p>" for line in summary]
        self._contents: list[tuple[str, str]] = []
        self._figures = 0
        self.charts: list[str] = []
        """Every chart on the page, for those who want files of them."""

    def section(self, title: str) -> None:
        """Begin a section; it appears in the contents."""
        anchor = f"s{len(self._contents) + 1}"
        self._contents.append((anchor, title))
        self._parts.append(f"<h2 id='{anchor}'>{html.escape(title)}</h2>")

    def text(self, *paragraphs: str) -> None:
        self._parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell]], *, caption: str) -> None:
        """A table; numbers are set right, with the digits they come with."""
        cells = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in head)
        body = "".join(f"<tr>{''.join(_cell(cell, first=i == 0) for i, cell in enumerate(row))}</tr>" for row in rows)
        self._parts.append(
            f"<div class='wide' tabindex='0' role='region' aria-label='{html.escape(caption, quote=True)}'><table>"
            f"<caption>{html.escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, svg: str, *, caption: str) -> None:
        """A chart, as made by `charts`. On a phone it keeps its size and scrolls, so that its words can be read."""
        self._figures += 1
        self.charts.append(svg)
        self._parts.append(
            f"<figure><div class='wide' tabindex='0' role='region' aria-label='{html.escape(caption, quote=True)}'>"
            f"{svg}</div><figcaption>Figure {self._figures}. {html.escape(caption)}</figcaption></figure>"
        )

    def sheet(
        self,
        rows: Sequence[Sequence[tuple[str, str]]],
        *,
        caption: str,
        names: Sequence[str] = (),
        row_names: Sequence[str] = (),
        labels: bool = False,
    ) -> None:
        """Rows of pictures, each a (data URI, alternative text), under optional column names and each row under its
        own; with `labels` each picture's text stands below it."""
        self._figures += 1
        columns = max((len(row) for row in rows), default=0)
        columns = max(columns, 3) if labels else columns  # a single small picture is not blown up
        heads = "".join(f"<div class='name'>{html.escape(name)}</div>" for name in names)
        cells = ""
        for index, row in enumerate(rows):
            cells += f"<div class='name row'>{html.escape(row_names[index])}</div>" if row_names else ""
            cells += "".join(_picture(uri, text, labelled=labels) for uri, text in row)
        self._parts.append(
            f"<figure><div class='wide' tabindex='0' role='region' aria-label='Figure {self._figures}'>"
            f"<div class='sheet' style='--columns:{columns}'>{heads}{cells}</div></div>"
            f"<figcaption>Figure {self._figures}. {html.escape(caption)}</figcaption></figure>"
        )

    def record(self, title: str, content: Mapping[str, Any]) -> None:
        """Something to unfold: the manifest behind the numbers."""
        text = html.escape(json.dumps(content, indent=2, default=str, ensure_ascii=False))
        self._parts.append(f"<details><summary>{html.escape(title)}</summary><pre tabindex='0'>{text}</pre></details>")

    def html(self) -> str:
        """The whole page."""
        style = resources.files("laworder.report").joinpath("page.css").read_text(encoding="utf-8")
        links = "".join(f"<li><a href='#{anchor}'>{html.escape(title)}</a></li>" for anchor, title in self._contents)
        contents = f"<nav aria-label='Contents'><ol>{links}</ol></nav>" if links else ""
        lead = [part for part in self._parts if part.startswith("<p class='lead'")]
        rest = [part for part in self._parts if not part.startswith("<p class='lead'")]
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            "<meta name='color-scheme' content='light dark'>"
            f"<title>{html.escape(self.title)}</title><style>{style}</style></head><body><main>"
            f"<h1>{html.escape(self.title)}</h1>{''.join(lead)}{contents}{''.join(rest)}"
            f"</main><footer>laworder {__version__}. Not a medical device.</footer></body></html>\n"
        )

    def write(self, path: Path) -> None:
        path.write_text(self.html(), encoding="utf-8")


def _picture(uri: str, text: str, *, labelled: bool) -> str:
    picture = f"<img src='{uri}' alt='{html.escape(text, quote=True)}'>"
    return f"<div>{picture}<div class='name'>{html.escape(text)}</div></div>" if labelled else picture


def _cell(cell: Cell, *, first: bool) -> str:
    if first:
        return f"<th scope='row'>{html.escape(str(cell))}</th>"
    kind = " class='number'" if isinstance(cell, (int, float)) else ""
    return f"<td{kind}>{html.escape(str(cell))}</td>"
