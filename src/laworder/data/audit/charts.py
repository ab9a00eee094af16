"""What the audit draws: which sizes of lesions shrink, where the masks lie on the axis of r, what LAW weighs there."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from laworder.data.audit.survival import SIZE_EDGES
from laworder.data.audit.weights import R_EDGES, W_MAX, weights_of
from laworder.report import Series, bar_chart, line_chart

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit


FEW = 5
"""Fewer lesions than this make no share worth a bar."""


class Chart(NamedTuple):
    svg: str
    caption: str


def survival_chart(audit: Audit) -> Chart | None:
    """Share of lesions that lose more than a fifth on the coarsest grid, by size, a bar for each split."""
    g = min(range(len(audit.grids)), key=lambda k: audit.grids[k].side)
    names = [f"{100 * a:g}–{100 * b:g} %" for a, b in itertools.pairwise(SIZE_EDGES)]
    series = []
    for split in audit.splits:
        found = {line.name: 100 * float(line.shrunk[g, 0]) for line in split.survival if line.lesions >= FEW}
        series.append((split.name, [found.get(name, math.nan) for name in names]))
    if all(math.isnan(v) for _, values in series for v in values):
        return None
    title = f"Lesions that lose more than 20 % of their area on {audit.grids[g].name}, nearest"
    drawn = bar_chart(names, series, x_label="lesion area, share of the image", y_label="lesions, %", title=title)
    none = f"No bar: fewer than {FEW} lesions of that size, or none that shrinks."
    return Chart(drawn, f"{title}, by the lesion's size. {none}")


def ratio_chart(audit: Audit) -> Chart | None:
    """Where the masks lie on the axis of r, on the finest of the latents' grids."""
    found = [(split.name, w) for split in audit.splits for w in split.weights if w.resize == "nearest"]
    if not found:
        return None
    side = max(w.side for _, w in found)
    names = ["0", *(f"{100 * a:g}–{100 * b:g} %" for a, b in itertools.pairwise(R_EDGES))]
    bars = [(name, [100 * share for share in w.histogram()]) for name, w in found if w.side == side]
    title = f"The lesion's share r of the latents ({side}²)"
    return Chart(bar_chart(names, bars, x_label="r", y_label="masks, %", title=title), title + ", by split.")


def weight_chart(audit: Audit) -> Chart | None:
    """What LAW weighs, by r, at its start."""
    sides = [w.side for split in audit.splits for w in split.weights]
    if not sides:
        return None
    side = max(sides)
    cells = np.unique(np.geomspace(1, side * side * 0.9, 120).astype(np.int64))
    lesion, background, mean = weights_of(cells, side)
    r = (100 * cells / side**2).tolist()
    lines = [("lesion", lesion), ("background", background), ("mean", mean)]
    series = [Series(name, r, values.tolist()) for name, values in lines]
    title = "Weights before LAW has learnt anything, after the clamp"
    drawn = line_chart(series, x_label="r, % of the latents", y_label="weight", title=title, log_x=True)
    return Chart(
        drawn,
        f"{title}. Below r = {100 / (2 * W_MAX):g} % every lesion cell sits at w_max = {W_MAX:g}, and the mean weight "
        "falls under 1.",
    )
