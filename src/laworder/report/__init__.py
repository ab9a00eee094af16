"""Pages that explain themselves: one HTML file, no network, pictures and charts inside."""

from __future__ import annotations

from laworder.report.charts import Series, bar_chart, line_chart
from laworder.report.files import Sheet, sheet_png, standalone
from laworder.report.page import Page
from laworder.report.pictures import contour, gray_picture, picture_uri

__all__ = [
    "Page",
    "Series",
    "Sheet",
    "bar_chart",
    "contour",
    "gray_picture",
    "line_chart",
    "picture_uri",
    "sheet_png",
    "standalone",
]
