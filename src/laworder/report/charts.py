"""Line and bar charts as SVG text: no plotting library, colours follow the page's light or dark theme."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 18, 48
COLOURS = 6
ROW, SWATCH, LETTER = 18, 17, 7.2
"""A legend's line, its coloured square with the gap behind it, and a letter on average, in the chart's own units."""


@dataclass(frozen=True)
class Series:
    """One named line: points, and optionally a band (low, high) around each."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    band: Sequence[tuple[float, float]] | None = None


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (v - low) / (high - low) * (self.end - self.start)


def line_chart(series: Sequence[Series], *, x_label: str, y_label: str, title: str, log_x: bool = False) -> str:
    """Lines with markers where points are few, bands where given, a legend above in as many rows as it takes."""
    assert series, "a chart has at least one series"
    assert all(len(s.x) for s in series), "a series has at least one point"
    xs = [x for s in series for x in s.x]
    ys = [y for s in series for y in s.y] + [v for s in series if s.band for pair in s.band for v in pair]
    log_x = log_x and min(xs) > 0
    sx = _Scale(*_padded(min(xs), max(xs), log_x), LEFT, WIDTH - RIGHT, log_x)
    y_ticks = nice_ticks(min(ys), max(ys))
    sy = _Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP + 18)
    x_ticks = (
        log_ticks(sx.low, sx.high) if log_x else [t for t in nice_ticks(min(xs), max(xs)) if sx.low <= t <= sx.high]
    )
    marks = [_line(s, sx, sy, i) for i, s in enumerate(series)]
    legend = _legend([s.name for s in series])
    return _frame(title, x_label, y_label, sx, sy, x_ticks, y_ticks, marks, legend)


def bar_chart(
    groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, x_label: str, y_label: str, title: str
) -> str:
    """Bars side by side in named groups; NaN leaves a gap."""
    assert groups, "a chart has at least one group"
    values = [v for _, bars in series for v in bars if not math.isnan(v)]
    y_ticks = nice_ticks(0.0, max(values, default=1.0) or 1.0)
    sx = _Scale(0, len(groups), LEFT, WIDTH - RIGHT)
    sy = _Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP + 18)
    slot = 0.8 / len(series)
    marks: list[str] = []
    for i, (name, bars) in enumerate(series):
        for g, value in enumerate(bars):
            if not math.isnan(value):
                left, right = sx(g + 0.1 + i * slot), sx(g + 0.1 + (i + 0.92) * slot)
                marks.append(
                    f"<rect x='{left:.1f}' y='{sy(value):.1f}' width='{right - left:.1f}' "
                    f"height='{sy(y_ticks[0]) - sy(value):.1f}' fill='var(--c{i % COLOURS})'>"
                    f"<title>{html.escape(f'{name}, {groups[g]}: {value:.4g}')}</title></rect>"
                )
    labels = [
        f"<text x='{sx(g + 0.5):.1f}' y='{HEIGHT - BOTTOM + 17}' text-anchor='middle'>{html.escape(group)}</text>"
        for g, group in enumerate(groups)
    ]
    legend = _legend([name for name, _ in series]) if len(series) > 1 else []
    return _frame(title, x_label, y_label, sx, sy, [], y_ticks, [*marks, *labels], legend)


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    if high > low:
        return low, high
    return (low / 2, high * 2) if log else (low - 0.5, high + 0.5)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover [low, high]."""
    low, high = _padded(low, high, False) if high <= low else (low, high)
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten inside [low, high]."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]


def _line(series: Series, sx: _Scale, sy: _Scale, index: int) -> str:
    colour = f"var(--c{index % COLOURS})"
    points = [(sx(x), sy(y)) for x, y in zip(series.x, series.y, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = []
    if series.band:
        upper = [(x, sy(high)) for (x, _), (_, high) in zip(points, series.band, strict=True)]
        lower = [(x, sy(low)) for (x, _), (low, _) in zip(points, series.band, strict=True)]
        outline = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        parts.append(f"<polygon points='{outline}' fill='{colour}' opacity='.18'/>")
    parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
    if len(points) <= 24:
        parts += [
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{colour}'>"
            f"<title>{html.escape(f'{series.name}: {a:.4g}, {b:.4g}')}</title></circle>"
            for (x, y), a, b in zip(points, series.x, series.y, strict=True)
        ]
    return "".join(parts)


def _legend(names: Sequence[str]) -> list[str]:
    """Its rows, from the top; a name that one row cannot hold is cut in its middle."""
    rows, x = [""], float(LEFT)
    for i, name in enumerate(names):
        shown = _shortened(name, int((WIDTH - RIGHT - LEFT - SWATCH) / LETTER))
        wide = SWATCH + LETTER * len(shown)
        if x > LEFT and x + wide > WIDTH - RIGHT:
            rows, x = [*rows, ""], float(LEFT)
        whole = f"<title>{html.escape(name)}</title>" if shown != name else ""
        rows[-1] += (
            f"<rect x='{x:.0f}' y='8' width='12' height='12' rx='2' fill='var(--c{i % COLOURS})'/>"
            f"<text x='{x + SWATCH:.0f}' y='18'>{html.escape(shown)}{whole}</text>"
        )
        x += wide + ROW
    return rows


def _shortened(name: str, letters: int) -> str:
    if len(name) <= letters:
        return name
    return f"{name[: letters // 2 - 1]}…{name[len(name) - letters // 2 :]}"


def _frame(
    title: str,
    x_label: str,
    y_label: str,
    sx: _Scale,
    sy: _Scale,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    marks: Sequence[str],
    legend: Sequence[str],
) -> str:
    above = ROW * max(len(legend) - 1, 0)  # further rows grow upwards: the plot keeps its room
    rows = [f"<g transform='translate(0 {ROW * i - above})'>{row}</g>" for i, row in enumerate(legend)]
    centre, middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    labels = (
        f"<text x='{centre:.0f}' y='{HEIGHT - 8}' text-anchor='middle'>{html.escape(x_label)}</text>"
        f"<text transform='translate(14 {middle:.0f}) rotate(-90)' text-anchor='middle'>{html.escape(y_label)}</text>"
    )
    return (
        f"<svg class='chart' viewBox='0 {-above} {WIDTH} {HEIGHT + above}' role='img' "
        f"aria-label='{html.escape(title, quote=True)}'>"
        f"{_axes(sx, sy, x_ticks, y_ticks)}{''.join(marks)}{''.join(rows)}{labels}</svg>"
    )


def _axes(sx: _Scale, sy: _Scale, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> str:
    grid = [
        f"<line class='grid' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{sy(t):.1f}' y2='{sy(t):.1f}'/>"
        f"<text x='{LEFT - 8}' y='{sy(t) + 4:.1f}' text-anchor='end'>{t:g}</text>"
        for t in y_ticks
    ]
    ticks = [
        f"<line class='axis' x1='{sx(t):.1f}' x2='{sx(t):.1f}' y1='{HEIGHT - BOTTOM}' y2='{HEIGHT - BOTTOM + 5}'/>"
        f"<text x='{sx(t):.1f}' y='{HEIGHT - BOTTOM + 19}' text-anchor='middle'>{t:g}</text>"
        for t in x_ticks
    ]
    axis = f"<line class='axis' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{HEIGHT - BOTTOM}' y2='{HEIGHT - BOTTOM}'/>"
    return "".join([*grid, axis, *ticks])
