"""Charts and sheets of pictures as files of their own, for papers and slides: SVG and PNG, on white."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

Picture = UInt8[np.ndarray, "h w 3"]
TILE = 256
"""Pixels that the longer side of a small picture is enlarged to, at least half way: by whole numbers, never blurred."""
GAP, MARGIN, LETTERS = 8, 16, 20
DPI = 300
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_PLAIN = str.maketrans({"δ": "delta", "–": "-", "×": "x", "−": "-", "…": "..."})
"""What the font inside Pillow lacks."""


@dataclass(frozen=True)
class Sheet:
    """Rows of pictures. columns: heads above them; names: a line above each row; either may be empty."""

    rows: Sequence[Sequence[Picture]]
    columns: Sequence[str] = ()
    names: Sequence[str] = ()


def colours() -> dict[str, str]:
    """The pages' light colours, by name."""
    style = resources.files("laworder.report").joinpath("page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+):(#[0-9a-f]+)", style.partition("@media")[0]))


def standalone(svg: str) -> str:
    """A chart as a file: the colours inside, as attributes (not every program reads styles), on a white ground."""
    known = colours()
    box = re.search(r"viewBox='(\S+) (\S+) (\S+) (\S+)'", svg)
    assert box is not None, "charts say how large they are"
    left, top, width, height = box.groups()
    head, _, body = svg.partition(">")
    head = head.replace(
        "<svg class='chart'",
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' font-size='12' "
        f"font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" fill='{known['ink']}'",
        1,
    )
    body = body.replace("class='grid'", f"stroke='{known['line']}' stroke-width='1'")
    body = body.replace("class='axis'", f"stroke='{known['soft']}' stroke-width='1'")
    ground = f"<rect x='{left}' y='{top}' width='{width}' height='{height}' fill='#ffffff'/>"
    return _VARIABLE.sub(lambda found: known[found[1]], f"{head}>{ground}{body}") + "\n"


def enlarged(picture: np.ndarray, side: int = TILE) -> np.ndarray:
    """A picture or mask whose longer side is about `side`, enlarged by a whole number; large ones stay as they are."""
    factor = max(1, round(side / max(picture.shape[:2])))
    return np.repeat(np.repeat(picture, factor, axis=0), factor, axis=1)


def sheet_png(sheet: Sheet) -> bytes:
    """The sheet as a PNG file: black words on white."""
    rows = [[enlarged(picture) for picture in row] for row in sheet.rows]
    font = ImageFont.load_default(size=LETTERS)
    tall, wide = (max(picture.shape[axis] for row in rows for picture in row) for axis in (0, 1))
    wide = max(wide, *(_width(font, text) for text in sheet.columns)) if sheet.columns else wide
    count = max(map(len, rows))
    line = LETTERS + GAP
    step = tall + GAP + (line if sheet.names else 0)
    top = MARGIN + (line if sheet.columns else 0)
    longest = max((_width(font, text) for text in sheet.names), default=0)
    size = (2 * MARGIN + max(count * (wide + GAP) - GAP, longest), top + len(rows) * step - GAP + MARGIN)
    canvas = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(canvas)
    for column, text in enumerate(sheet.columns):
        pen.text((MARGIN + column * (wide + GAP), MARGIN - 2), text.translate(_PLAIN), fill="black", font=font)
    for index, row in enumerate(rows):
        y = top + index * step
        if sheet.names:
            pen.text((MARGIN, y - 2), sheet.names[index].translate(_PLAIN), fill="black", font=font)
            y += line
        for column, picture in enumerate(row):
            canvas.paste(Image.fromarray(picture), (MARGIN + column * (wide + GAP), y))
    return _packed(canvas)


def _width(font: ImageFont.ImageFont | ImageFont.FreeTypeFont, text: str) -> int:
    return int(font.getlength(text.translate(_PLAIN))) + 1


def _packed(canvas: Image.Image) -> bytes:
    content = io.BytesIO()
    canvas.save(content, "PNG", optimize=True, dpi=(DPI, DPI))
    return content.getvalue()
