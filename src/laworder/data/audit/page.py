"""audit.html: what was found in words, then tables, charts and the pictures to judge it by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from laworder.data.audit.autoencoder import Reconstruct
from laworder.data.audit.leaks import KINDS_OF_PAIRS, picked_pairs
from laworder.data.audit.pictures import lost_lesions, pair_row, titled, worst_fits
from laworder.data.audit.roundtrip import roundtrip_picture
from laworder.data.audit.study import Audit, SplitAudit
from laworder.data.audit.survival import SIZE_EDGES
from laworder.data.audit.tables import tables
from laworder.data.audit.weights import R_EDGES, W_MAX, weights_of
from laworder.data.pairs import Source, resize_pair
from laworder.report import Page, Series, bar_chart, contour, line_chart, picture_uri

SHOWN = 12
_SHOWN_ROUND_TRIPS = 4
_SAYS = {
    "identical": "Identical images",
    "copy": "Copies: the same image, encoded, scaled or brightened anew",
    "near": "Nearly the same: neighbouring frames or slices",
    "mirrored": "Mirrored or turned copies",
}


def make_page(audit: Audit, sources: Mapping[str, Source], *, vae: Reconstruct | None = None) -> Page:
    """The page of an audit; `sources` are read again for the pictures."""
    count = {kind: sum(f.severity == kind for f in audit.findings) for kind in ("error", "warning", "note")}
    pairs = ", ".join(f"{split.name} {len(split.looks)}" for split in audit.splits)
    summary = [
        f"{len(audit.looks)} pairs were looked at ({pairs}): {count['error']} errors, {count['warning']} warnings, "
        f"{count['note']} notes.",
        *(finding.text + "." for finding in audit.errors[:4]),
    ]
    page = Page(title="Audit of images and masks", summary=summary)
    page.section("What was found")
    rows = [[finding.severity, finding.subject, finding.text] for finding in audit.findings]
    page.table(["severity", "about", "what"], rows or [["note", "–", "nothing"]], caption="Errors first.")
    made = list(tables(audit))

    def put(*titles: str) -> None:
        for table in made:
            if table.title.split(",")[0] in titles:
                page.table(table.head, table.rows, caption=table.caption)

    page.section("Masks")
    put("Masks")
    page.section("Duplicates and leaks")
    put("Duplicates")
    _twins(page, audit, sources)
    page.section("Do masks and images belong together?")
    put("Pairing")
    for split in audit.splits:
        worst_fits(page, split, sources[split.name])
    page.section("Will this lesion survive?")
    put("Survival")
    _survival(page, audit)
    for split in audit.splits:
        lost_lesions(page, audit, split, sources[split.name])
    page.section("What LAW will do with these masks")
    put("LAW")
    _weights(page, audit)
    if any(split.fading for split in audit.splits):
        page.section("Through the autoencoder")
        put("Autoencoder")
        for split in audit.splits:
            _round_trips(page, split, sources[split.name], vae)
    return page


def _twins(page: Page, audit: Audit, sources: Mapping[str, Source]) -> None:
    """For each kind: the pairs that cross splits first."""
    for kind in KINDS_OF_PAIRS:
        chosen, total = picked_pairs(audit, kind, SHOWN)
        if not chosen:
            continue
        cells = [pair_row(audit, sources, a, b) for a, b in chosen]
        lines = [[*cells[k], *(cells[k + 1] if k + 1 < len(cells) else [])] for k in range(0, len(cells), 2)]
        named = "; ".join(
            f"{audit.looks[a].split}/{audit.looks[a].name} = {audit.looks[b].split}/{audit.looks[b].name}"
            for a, b in chosen
        )
        more = f"{len(chosen)} of {total} pairs, those across splits first: " if total > len(chosen) else ""
        page.sheet(lines, caption=f"{_SAYS[kind]}, with their masks outlined. {more}{named}.")


def _survival(page: Page, audit: Audit) -> None:
    """Share of lesions that lose more than a fifth on the coarsest grid, by size, one bar for each split."""
    g = min(range(len(audit.grids)), key=lambda k: audit.grids[k].side)
    names = [f"{100 * a:g}–{100 * b:g} %" for a, b in itertools.pairwise(SIZE_EDGES)]
    series = []
    for split in audit.splits:
        found = {line.name: 100 * float(line.shrunk[g, 0]) for line in split.survival}
        series.append((split.name, [found.get(name, math.nan) for name in names]))
    if any(not math.isnan(v) for _, values in series for v in values):
        title = f"Lesions that lose more than 20 % of their area on {audit.grids[g].name}, nearest"
        chart = bar_chart(names, series, x_label="lesion area, share of the image", y_label="lesions, %", title=title)
        page.figure(chart, caption=title + ".")


def _weights(page: Page, audit: Audit) -> None:
    """Where the masks lie on the axis of r, and what LAW weighs there."""
    nearest = [[w for w in split.weights if w.resize == "nearest"] for split in audit.splits]
    if not any(nearest):
        return
    side = max(w.side for found in nearest for w in found)
    names = ["0", *(f"{100 * a:g}–{100 * b:g} %" for a, b in itertools.pairwise(R_EDGES))]
    bars = [
        (split.name, [100 * share for share in w.histogram()])
        for split, found in zip(audit.splits, nearest, strict=True)
        for w in found
        if w.side == side
    ]
    title = f"The lesion's share r of the latents ({side}²)"
    page.figure(bar_chart(names, bars, x_label="r", y_label="masks, %", title=title), caption=title + ", by split.")
    cells = np.unique(np.geomspace(1, side * side * 0.9, 120).astype(np.int64))
    lesion, background, mean = weights_of(cells, side)
    r = (100 * cells / side**2).tolist()
    lines = [("lesion", lesion), ("background", background), ("mean", mean)]
    series = [Series(name, r, values.tolist()) for name, values in lines]
    title = "Weights before LAW has learnt anything, after the clamp"
    page.figure(
        line_chart(series, x_label="r, % of the latents", y_label="weight", title=title, log_x=True),
        caption=f"{title}. Below r = {100 / (2 * W_MAX):g} % every lesion cell sits at w_max = {W_MAX:g}, and the mean "
        "weight falls under 1.",
    )


def _round_trips(page: Page, split: SplitAudit, source: Source, vae: Reconstruct | None) -> None:
    """The images whose lesions lost most: before, after, and after with the outline."""
    if vae is None or split.fading is None:
        return
    rows: list[Sequence[tuple[str, str]]] = []
    seen: set[int] = set()
    for kept, index in split.fading.faded_most:
        if index not in seen and len(rows) < _SHOWN_ROUND_TRIPS:
            seen.add(index)
            image, mask = resize_pair(source.read(index), split.fading.size, 3)
            after = roundtrip_picture(image, vae)
            name = f"{source.names[index]}, {100 * kept:.0f} % of the contrast kept"
            shown = [(image, "before"), (after, "after"), (contour(after, mask > 0), "after, lesion outlined")]
            rows.append([(picture_uri(titled(picture)), f"{name}: {what}") for picture, what in shown])
    if rows:
        caption = f"{split.name}: the lesions that lose most contrast. Before, after, and after with the outline."
        page.sheet(rows, caption=caption)
