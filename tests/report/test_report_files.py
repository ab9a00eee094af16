"""Charts and sheets as files: nothing that only a page gives them, legends that fit, pictures pixel by pixel."""

from __future__ import annotations

import html
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from laworder.report import Series, Sheet, bar_chart, contour, line_chart, sheet_png, standalone
from laworder.report.charts import LETTER, RIGHT, WIDTH
from laworder.report.files import GAP, LETTERS, MARGIN, TILE, enlarged

LONG = [
    "nnUNet (U-Net, 31 M)",
    "PraNet",
    "EGE-UNet (the paper's widths)",
    "EGE-UNet (its authors' default)",
    "MK-UNet-T",
]


def lines(names: list[str]) -> str:
    series = [Series(name, [0, 1, 2], [0.1 * i, 0.5, 0.9]) for i, name in enumerate(names)]
    return line_chart(series, x_label="x", y_label="y", title="t")


def box(svg: str) -> list[float]:
    return [float(v) for v in re.findall(r"viewBox='([^']*)'", svg)[0].split()]


def marks(svg: str) -> list[str]:
    """The plot: axes and lines, without the legend."""
    return re.findall(r"<(?:line|polyline|circle) [^>]*>", svg)


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_a_legend_takes_as_many_rows_as_its_names_need(kind: str) -> None:
    def chart(names: list[str]) -> str:
        if kind == "lines":
            return lines(names)
        return bar_chart(["a"], [(name, [1.0]) for name in names], x_label="x", y_label="y", title="t")

    svg = chart(LONG)
    rows = re.findall(r"<g transform='translate\(0 (-?\d+)\)'>(.*?)</g>", svg)
    assert len(rows) > 1
    tops = [int(y) for y, _ in rows]
    assert tops[-1] == 0
    assert tops == sorted(set(tops))
    found: list[str] = []
    for _, row in rows:
        entries = [(x, html.unescape(name)) for x, name in re.findall(r"<text x='(\d+)' y='18'>([^<]*)<", row)]
        ends = [int(x) + LETTER * len(name) for x, name in entries]
        assert max(ends) <= WIDTH - RIGHT + 1
        assert all(int(x) > end for (x, _), end in zip(entries[1:], ends, strict=False))
        found += [name for _, name in entries]
    assert found == LONG
    # The plot is where it was, and the chart grows by what the further rows take.
    few = chart(["a", "b", "c", "d", "e"])
    assert marks(svg) == marks(few)
    assert box(few)[1] == 0
    assert box(svg)[1] == tops[0] < 0
    assert box(svg)[3] - box(few)[3] == -tops[0]
    ElementTree.fromstring(svg)


def test_a_name_longer_than_a_row_is_cut_and_kept_in_full_as_a_title() -> None:
    name = "runs/" + "x" * 120 + "/best"
    svg = lines([name, "b"])
    shown = re.findall(r"y='18'>([^<]*)<title>([^<]*)</title>", svg)
    assert [whole for _, whole in shown] == [name]
    assert shown[0][0].startswith("runs/x")
    assert shown[0][0].endswith("x/best")
    assert len(shown[0][0]) * LETTER < WIDTH


def test_a_chart_as_a_file_needs_no_page() -> None:
    inside = lines(LONG)
    assert "var(" in inside
    root = ElementTree.fromstring(standalone(inside))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    left, top, width, height = box(inside)
    assert (float(root.get("width", 0)), float(root.get("height", 0))) == (width, height)
    ground = root[0]
    assert (ground.tag.endswith("rect"), ground.get("fill")) == (True, "#ffffff")
    assert [float(ground.get(k, "nan")) for k in ("x", "y", "width", "height")] == [left, top, width, height]
    for part in root.iter():
        assert "class" not in part.attrib
        for key in ("fill", "stroke"):
            assert re.fullmatch(r"#[0-9a-f]{3,6}|none", part.get(key, "none")), ElementTree.tostring(part)
        if part.tag.endswith("line"):
            assert part.get("stroke"), "an axis that nobody colours is not seen"
    assert len({part.get("stroke") for part in root.iter() if part.tag.endswith("polyline")}) == len(LONG)


def test_pictures_are_enlarged_by_whole_numbers_only() -> None:
    small = np.arange(64 * 48, dtype=np.uint8).reshape(64, 48)
    large = enlarged(small)
    assert large.shape == (256, 192)
    np.testing.assert_array_equal(large[::4, ::4], small)
    assert enlarged(np.zeros((384, 300, 3), np.uint8)).shape == (384, 300, 3)


def test_a_sheet_holds_every_picture_where_it_belongs() -> None:
    rows = [[np.full((64, 64, 3), 40 * (2 * r + c), np.uint8) for c in range(2)] for r in range(3)]
    sheet = Sheet(rows, columns=["mask", "δ × 2"], names=["first", "second", "a long name that says much about a row"])
    content = sheet_png(sheet)
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
        pixels = np.asarray(picture.convert("RGB"))
    line = LETTERS + GAP
    assert pixels.shape[1] == 2 * MARGIN + 2 * TILE + GAP
    assert (pixels[: MARGIN // 2] == 255).all()
    for r in range(3):
        y = MARGIN + line + r * (TILE + GAP + line)
        assert pixels[y : y + LETTERS].min() < 128, "the row's name stands above it"
        for c in range(2):
            x = MARGIN + c * (TILE + GAP)
            np.testing.assert_array_equal(
                pixels[y + line : y + line + TILE, x : x + TILE], np.full((TILE, TILE, 3), 40 * (2 * r + c))
            )
    assert pixels[MARGIN : MARGIN + LETTERS, MARGIN + TILE + GAP :].min() < 128
    plain = Sheet(rows)
    with Image.open(io.BytesIO(sheet_png(plain))) as picture:
        assert picture.size == (2 * MARGIN + 2 * TILE + GAP, 2 * MARGIN + 3 * TILE + 2 * GAP)


def test_what_the_font_lacks_is_written_in_letters_that_it_has() -> None:
    picture = [[np.zeros((64, 64, 3), np.uint8)]]
    assert sheet_png(Sheet(picture, columns=["δ – ×"])) == sheet_png(Sheet(picture, columns=["delta - x"]))


def test_wide_outlines_lie_inside_the_mask() -> None:
    mask = np.zeros((20, 20), bool)
    mask[2:18, 2:18] = True
    black = np.zeros((20, 20, 3), np.uint8)
    for width, count in ((1, 60), (3, 16 * 16 - 10 * 10)):
        drawn = contour(black, mask, colour=(255, 0, 0), width=width)
        assert (drawn[..., 0] == 255).sum() == count
        assert not drawn[~mask].any()
