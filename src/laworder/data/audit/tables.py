"""The audit as tables, in words and numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from laworder.data.audit.duplicates import groups
from laworder.data.audit.leaks import KINDS_OF_PAIRS, across
from laworder.data.audit.survival import RESIZES
from laworder.data.audit.table import Table, percent

if TYPE_CHECKING:
    from laworder.data.audit.look import Look
    from laworder.data.audit.study import Audit, SplitAudit


def tables(audit: Audit) -> Iterator[Table]:
    """Every table, in the order in which they are printed."""
    yield mask_table(audit)
    if any(one.fingerprint for one in audit.looks):
        yield duplicate_table(audit)
        yield pairing_table(audit)
    for split in audit.splits:
        if split.survival:
            yield survival_table(audit, split)
    yield weight_table(audit)
    if any(split.fading for split in audit.splits):
        yield fading_table(audit)


def mask_table(audit: Audit) -> Table:
    head = [
        "split",
        "pairs",
        "lesions",
        "median area",
        "empty",
        "full",
        "at border",
        "specks",
        "soft",
        "values",
    ]
    rows: list[list[str | int]] = []
    for split in audit.splits:
        masks = [one.mask for one in split.looks]
        areas = sorted(m.area for m in masks if not m.empty)
        files = [m.file for m in masks if m.file is not None]
        often = Counter([f.text for f in files] or [", ".join(map(str, m.classes)) for m in masks])
        values = [text for text, _ in often.most_common()]
        rows.append(
            [
                split.name,
                len(masks),
                sum(m.lesions for m in masks),
                percent(areas[len(areas) // 2], 2) if areas else "–",
                sum(m.empty for m in masks),
                sum(m.full for m in masks),
                sum(m.border for m in masks),
                sum(m.specks for m in masks),
                sum(f.levels > 2 for f in files),
                "; ".join(values[:3]) + (" …" if len(values) > 3 else ""),
            ]
        )
    caption = (
        "Masks. Lesions are connected parts of at least 10 pixels, specks are smaller ones; soft masks hold values "
        "between background and lesion."
    )
    return Table("Masks", head, rows, caption)


def _inside(audit: Audit, split: SplitAudit, kind: str) -> list[list[Look]]:
    """The groups that a kind of pairs makes of a split's own images."""
    found = groups(audit.duplicates, len(audit.looks), (kind,))
    kept = ([audit.looks[i] for i in members if audit.looks[i].split == split.name] for members in found)
    return [members for members in kept if len(members) > 1]


def duplicate_table(audit: Audit) -> Table:
    """Groups inside each split, and images that stand on both sides."""
    rows: list[list[str | int]] = []
    for split in audit.splits:
        row: list[str | int] = [f"within {split.name}"]
        for kind in KINDS_OF_PAIRS:
            inside = _inside(audit, split, kind)
            row.append(f"{len(inside)} ({sum(map(len, inside))})" if inside else "0")
        rows.append(row)
    names = [split.name for split in audit.splits]
    crossing = {kind: across(audit, kind) for kind in KINDS_OF_PAIRS}
    for k, a in enumerate(names):
        for b in names[k + 1 :]:
            row = [f"{a} and {b}"]
            for kind in KINDS_OF_PAIRS:
                links = crossing[kind].get((a, b), [])
                ends = (len({i for i, _ in links}), len({j for _, j in links}))
                row.append(f"{ends[0]} and {ends[1]}" if links else "0")
            rows.append(row)
    caption = (
        "The same image, or nearly. Within a split: groups (images in them); between two: images of the one and of the "
        "other that have such a twin on the other side."
    )
    return Table("Duplicates", ["where", *KINDS_OF_PAIRS], rows, caption)


def twin_table(audit: Audit, most: int = 20) -> Table:
    """Which images they are, by name: those that cross splits first."""
    rows: list[list[str | int]] = []
    for kind in KINDS_OF_PAIRS:
        for (a, b), links in across(audit, kind).items():
            named = [f"{audit.looks[i].name} = {audit.looks[j].name}" for i, j in links]
            rows.append([f"{a} and {b}", kind, len(links), _some(named, most, "; ")])
    for kind in KINDS_OF_PAIRS:
        for split in audit.splits:
            named = [_some([one.name for one in m], 8, " = ") for m in _inside(audit, split, kind)]
            if named:
                rows.append([f"within {split.name}", kind, len(named), _some(named, most, "; ")])
    caption = (
        "The same by name: pairs across splits, groups within one. A near group is a chain of neighbours, whose "
        "ends may differ."
    )
    return Table("Twins", ["where", "kind", "how many", "which"], rows, caption)


def _some(named: list[str], most: int, between: str) -> str:
    return between.join(named[:most]) + (f" and {len(named) - most} more" if len(named) > most else "")


def pairing_table(audit: Audit) -> Table:
    rows: list[list[str | int]] = []
    for split in audit.splits:
        test = split.alignment
        if test is not None and test.turned:
            best, (ahead, _) = max(test.turned.items(), key=lambda turned: turned[1][0])
            rows.append(
                [
                    split.name,
                    test.tested,
                    percent(test.own, 0),
                    f"{test.sure:.0f}",
                    best,
                    percent(ahead, 0),
                ]
            )
    head = ["split", "tested", "own fits better", "errors over 50 %", "best turn", "turned fits better"]
    caption = (
        "How often an image's own mask fits it better than the masks of other images do (50 % is chance; beside it, by "
        "how many standard errors that lies above chance), and how often it fits better still when it is turned."
    )
    return Table("Pairing", head, rows, caption)


def survival_table(audit: Audit, split: SplitAudit) -> Table:
    head = ["lesion area", *(line.name for line in split.survival)]
    rows: list[list[str | int]] = [["lesions", *(str(line.lesions) for line in split.survival)]]
    safe: list[str] = []
    for g, grid in enumerate(audit.grids):
        for k, how in enumerate(RESIZES):
            cells = [_fate(line.vanished[g, k], line.shrunk[g, k]) for line in split.survival]
            if any(cell != "–" for cell in cells):
                rows.append([f"{grid.name}, {how}", *cells])
            else:
                safe.append(f"{grid.name} ({how})")
    caption = (
        f"Will this lesion survive? {split.name}: percent of lesions that vanish / that lose more than 20 % of their "
        "area (vanished ones included), by their share of the picture; – where none does. Latents come from the mask "
        "at the size of the picture." + (f" No lesion loses as much at {', '.join(safe)}." if safe else "")
    )
    return Table(f"Survival, {split.name}", head, rows, caption)


def _fate(vanished: float, shrunk: float) -> str:
    return f"{100 * vanished:.1f} / {100 * shrunk:.1f}" if shrunk else "–"


def weight_table(audit: Audit) -> Table:
    head = ["split", "latents", "resize", "r: 5 %, median, 95 %", "even", "lost", "saturated", "mean weight"]
    rows: list[list[str | int]] = []
    for split in audit.splits:
        for w in split.weights:
            spread = ", ".join(f"{100 * r:.2f}" for r in np.quantile(w.ratio, (0.05, 0.5, 0.95)))
            shares = [percent(w.blank), percent(w.lost), percent(w.saturated, 0), f"{w.mean_weight.mean():.2f}"]
            rows.append([split.name, f"{w.side}²", w.resize, f"{spread} %", *shares])
    caption = (
        "What LAW will do with these masks before it has learnt anything. r: the lesion's share of the latents, its "
        "5th, 50th and 95th percentile over the masks; even: masks that are empty or full there and so weigh evenly; "
        "lost: of the masks with a lesion, those that are empty there; saturated: lesion cells at the upper clamp; the "
        "weight is the mean after the clamp."
    )
    return Table("LAW", head, rows, caption)


def fading_table(audit: Audit) -> Table:
    head = [
        "split, lesion area",
        "lesions",
        "faint",
        "contrast kept",
        "faded",
        "gone",
        "PSNR inside",
        "PSNR of all",
    ]
    rows: list[list[str | int]] = []
    for split in audit.splits:
        seen = split.fading
        for line in seen.bins if seen is not None else []:
            assert seen is not None
            shares = [
                "–" if math.isnan(line.contrast) else f"{line.contrast:.2f}",
                percent(line.faded),
                percent(line.gone),
            ]
            rows.append(
                [
                    f"{split.name}, {line.name}",
                    line.lesions,
                    line.faint,
                    *shares,
                    f"{line.psnr:.1f} dB",
                    f"{seen.psnr:.1f} dB",
                ]
            )
    caption = (
        "Through the autoencoder and back. Faded lesions keep less than 0.8 of their contrast, gone ones less than "
        "0.2 (the median is shown); faint ones had hardly any to begin with, and are not judged. PSNR: inside lesions, "
        "and of the whole images."
    )
    return Table("Autoencoder", head, rows, caption)
