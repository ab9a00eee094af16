"""Pages: self-contained, escaped, with charts whose marks stand where the numbers say."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from laworder.report import Page, Series, bar_chart, contour, gray_picture, line_chart, picture_uri
from laworder.report.charts import log_ticks, nice_ticks


class Balanced(HTMLParser):
    """Fails on a tag that is closed without being open, or left open."""

    VOID = frozenset({"meta", "img", "link", "br", "line", "rect", "circle", "polyline", "polygon"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def page() -> Page:
    built = Page(title="A <b>title</b>", summary=["1 < 2 & so on"])
    built.section("Numbers")
    built.text("x > y")
    built.table(["model", "Dice"], [["order <01>", 0.763]], caption="a & b")
    built.figure(line_chart([Series("s", [1, 2], [3, 4])], x_label="x", y_label="y", title="t"), caption="c")
    built.sheet([[(picture_uri(np.zeros((4, 4, 3), np.uint8)), "black")]], names=["image"], caption="d")
    built.record("manifest", {"seed": 0, "path": "<x>"})
    return built


def test_page_is_balanced_escaped_and_needs_no_network() -> None:
    parser = Balanced()
    text = page().html()
    parser.feed(text)
    assert parser.open == []
    assert all(link.startswith(("data:", "#")) for link in parser.links)
    assert "<b>title" not in text
    assert "order &lt;01&gt;" in text
    assert "http" not in text.replace("http-equiv", "")


def test_line_chart_puts_marks_where_the_numbers_say() -> None:
    svg = line_chart([Series("a", [0, 10], [0.0, 1.0])], x_label="x", y_label="y", title="t")
    ElementTree.fromstring(svg)
    points = re.search(r"polyline points='([^']*)'", svg)
    assert points is not None
    (x0, y0), (x1, y1) = [[float(v) for v in p.split(",")] for p in points.group(1).split()]
    assert x0 < x1
    assert y0 > y1  # SVG's y axis points down
    ticks = {float(t): float(y) for y, t in re.findall(r"y='([\d.]+)' text-anchor='end'>([\d.]+)<", svg)}
    assert ticks[0.0] - 4 == pytest.approx(y0, abs=0.2)
    assert ticks[1.0] - 4 == pytest.approx(y1, abs=0.2)


def test_bands_logs_and_single_points_are_drawn() -> None:
    series = Series("a", [0.01, 0.1], [1, 2], band=[(0.5, 1.5), (1.5, 2.5)])
    svg = line_chart([series], x_label="x", y_label="y", title="t", log_x=True)
    assert "<polygon" in svg
    ElementTree.fromstring(line_chart([Series("a", [3], [3])], x_label="x", y_label="y", title="t"))


def test_bar_chart_heights_are_proportional() -> None:
    svg = bar_chart(["a", "b"], [("s", [1.0, 2.0]), ("t", [4.0, float("nan")])], x_label="x", y_label="y", title="t")
    ElementTree.fromstring(svg)
    heights = [float(h) for h in re.findall(r"height='([\d.]+)' fill='var", svg) if float(h) != 12]
    assert len(heights) == 3
    assert heights[1] / heights[0] == pytest.approx(2, rel=0.01)
    assert heights[2] / heights[0] == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.2, 0.83), (-3, 7), (5, 5), (1e-7, 3e-7), (0, 12345)])
def test_ticks_cover_the_range(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 9
    assert log_ticks(0.003, 0.2) == pytest.approx([0.005, 0.01, 0.02, 0.05, 0.1, 0.2])


def test_contour_draws_the_edge_only() -> None:
    mask = np.zeros((9, 9), bool)
    mask[2:7, 2:7] = True
    drawn = contour(np.zeros((9, 9, 3), np.uint8), mask, colour=(255, 0, 0))
    assert (drawn[..., 0] == 255).sum() == 16
    assert drawn[4, 4, 0] == 0


def test_pictures_survive_the_page() -> None:
    gray = gray_picture(np.array([[0.0, 1.0], [2.0, 3.0]]), low=0, high=2)
    assert gray[..., 0].tolist() == [[0, 128], [255, 255]]
    uri = picture_uri(np.full((8, 8, 3), 200, np.uint8))
    image = Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    assert abs(np.asarray(image).astype(int) - 200).max() <= 2
