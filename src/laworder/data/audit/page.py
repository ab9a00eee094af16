"""audit.html: what was found in words, then tables, charts and the pictures to judge it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laworder.data.audit.autoencoder import Reconstruct
from laworder.data.audit.charts import Chart, ratio_chart, survival_chart, weight_chart
from laworder.data.audit.leaks import KINDS_OF_PAIRS, picked_pairs
from laworder.data.audit.pictures import lost_lesions, side_by_side, titled, worst_fits
from laworder.data.audit.roundtrip import roundtrip_picture
from laworder.data.audit.study import Audit, SplitAudit
from laworder.data.audit.tables import tables, twin_table
from laworder.data.pairs import Source, resize_pair
from laworder.report import Page, contour, picture_uri

SHOWN = 12
_PAIRS_A_ROW = 3
_SHOWN_ROUND_TRIPS = 4
_SHORT = 34
_NAMED = 8
_Links = Sequence[tuple[int, int]]
_SAYS = {
    "identical": "Identical images",
    "copy": "All but the same: encoded, scaled or brightened anew, or taken a moment later",
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
                page.table(table.head, _unbroken(table.rows), caption=table.caption)

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
    _put(page, survival_chart(audit))
    for split in audit.splits:
        lost_lesions(page, audit, split, sources[split.name])
    page.section("What LAW will do with these masks")
    put("LAW")
    _put(page, ratio_chart(audit))
    _put(page, weight_chart(audit))
    if any(split.fading for split in audit.splits):
        page.section("Through the autoencoder")
        put("Autoencoder")
        for split in audit.splits:
            _round_trips(page, split, sources[split.name], vae)
    return page


def _put(page: Page, chart: Chart | None) -> None:
    if chart is not None:
        page.figure(chart.svg, caption=chart.caption)


def _twins(page: Page, audit: Audit, sources: Mapping[str, Source]) -> None:
    """For each kind: the pairs that cross splits first, to look at; then all of them by name."""
    for kind in KINDS_OF_PAIRS:
        chosen, total = picked_pairs(audit, kind, SHOWN)
        if not chosen:
            continue
        more = f" {len(chosen)} of {total} pairs, those across splits first." if total > len(chosen) else ""
        _pairs(page, audit, sources, chosen, f"{_SAYS[kind]}, with their masks outlined.{more}")
    if audit.conflicts:
        worst = [(one.a, one.b) for one in audit.conflicts[:SHOWN]]
        more = f" The {len(worst)} that agree least, of {len(audit.conflicts)}." if len(audit.conflicts) > SHOWN else ""
        _pairs(page, audit, sources, worst, f"One image, two masks.{more}")
    named = twin_table(audit, _NAMED)
    if named.rows:
        page.table(named.head, _unbroken(named.rows), caption=f"{named.caption} The JSON beside this page names more.")


def _pairs(page: Page, audit: Audit, sources: Mapping[str, Source], pairs: _Links, caption: str) -> None:
    cells = [side_by_side(audit, sources, a, b) for a, b in pairs]
    rows = [cells[k : k + _PAIRS_A_ROW] for k in range(0, len(cells), _PAIRS_A_ROW)]
    page.sheet(rows, caption=caption, labels=True)


def _unbroken(rows: Sequence[Sequence[str | int]]) -> list[list[str | int]]:
    """Numbers and short names stay on one line."""
    return [
        [c.replace(" ", "\N{NO-BREAK SPACE}") if isinstance(c, str) and len(c) <= _SHORT else c for c in r]
        for r in rows
    ]


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
        page.sheet(rows, caption=caption, labels=True)
