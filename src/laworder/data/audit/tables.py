"""The audit as tables: for the terminal, for Markdown, for JSON and for the page, from the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from laworder.data.audit.duplicates import groups
from laworder.data.audit.leaks import across, conflicts, crossing_groups
from laworder.data.audit.weights import R_EDGES

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit, SplitAudit

KINDS = ("identical", "copy", "near", "mirrored")
_LISTED = 200


class Table(NamedTuple):
    title: str
    head: list[str]
    rows: list[list[str | int]]
    caption: str


def percent(share: float, digits: int = 1) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f} %"


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
        "unread",
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
        values = sorted({f.text for f in files}, key=len) or sorted({", ".join(map(str, m.classes)) for m in masks})
        rows.append(
            [
                split.name,
                len(masks),
                len(split.problems),
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


def duplicate_table(audit: Audit) -> Table:
    """Groups inside each split, and images that stand on both sides."""
    rows: list[list[str | int]] = []
    for split in audit.splits:
        row: list[str | int] = [f"within {split.name}"]
        for kind in KINDS:
            inside = [
                kept
                for members in groups(audit.duplicates, len(audit.looks), (kind,))
                if len(kept := [i for i in members if audit.looks[i].split == split.name]) > 1
            ]
            row.append(f"{len(inside)} ({sum(map(len, inside))})" if inside else "0")
        rows.append(row)
    names = [split.name for split in audit.splits]
    crossing = {kind: across(audit, kind) for kind in KINDS}
    for k, a in enumerate(names):
        for b in names[k + 1 :]:
            row = [f"{a} and {b}"]
            for kind in KINDS:
                links = crossing[kind].get((a, b), [])
                ends = (len({i for i, _ in links}), len({j for _, j in links}))
                row.append(f"{ends[0]} and {ends[1]}" if links else "0")
            rows.append(row)
    caption = (
        "The same image, or nearly. Within a split: groups (images in them); between two: images of the one and of the "
        "other that have such a twin on the other side."
    )
    return Table("Duplicates", ["where", *KINDS], rows, caption)


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
    head = ["split", "tested", "own mask fits better", "standard errors over 50 %", "best turn", "turned fits better"]
    caption = (
        "Do masks and images belong together? An image's own mask against other images', and against itself turned."
    )
    return Table("Pairing", head, rows, caption)


def survival_table(audit: Audit, split: SplitAudit) -> Table:
    head = ["lesion area", "lesions"]
    head += [f"{grid.name}, {how}" for grid in audit.grids for how in ("nearest", "area")]
    rows: list[list[str | int]] = []
    for line in split.survival:
        row: list[str | int] = [line.name, line.lesions]
        for g in range(len(audit.grids)):
            row += [f"{100 * line.vanished[g, k]:.1f} / {100 * line.shrunk[g, k]:.1f}" for k in (0, 1)]
        rows.append(row)
    caption = (
        f"Will this lesion survive? {split.name}: percent of lesions that vanish / that lose more than 20 % of their "
        "area (vanished ones included), by their share of the picture. Latents come from the resized mask."
    )
    return Table(f"Survival, {split.name}", head, rows, caption)


def weight_table(audit: Audit) -> Table:
    head = ["split", "latents", "resize", "median r", "empty or full there", "lost there", "saturated", "mean weight"]
    rows: list[list[str | int]] = []
    for split in audit.splits:
        for w in split.weights:
            ordered = sorted(w.ratio.tolist())
            middle = percent(ordered[len(ordered) // 2], 2)
            shares = [percent(w.blank), percent(w.lost), percent(w.saturated, 0), f"{w.mean_weight.mean():.2f}"]
            rows.append([split.name, f"{w.side}²", w.resize, middle, *shares])
    caption = (
        "What LAW will do with these masks before it has learnt anything. r: the lesion's share of the latents; lost: "
        "of the masks with a lesion, those that are empty there; saturated: lesion cells at the upper clamp; the "
        "weight is the mean after the clamp."
    )
    return Table("LAW", head, rows, caption)


def fading_table(audit: Audit) -> Table:
    head = [
        "split, lesion area",
        "lesions",
        "faint",
        "median contrast kept",
        "faded",
        "gone",
        "PSNR inside",
        "whole images",
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
        "0.2; faint ones had hardly any to begin with."
    )
    return Table("Autoencoder", head, rows, caption)


def as_text(table: Table) -> str:
    """For the terminal: columns under their heads, long heads on several lines."""
    cells = [[str(c) for c in row] for row in table.rows]
    heads = [_wrapped(name, max([len(r[i]) for r in cells] or [0])) for i, name in enumerate(table.head)]
    tall = max(map(len, heads))
    lines = [
        [column[k - tall + len(column)] if k >= tall - len(column) else "" for column in heads] for k in range(tall)
    ]
    widths = [max(len(line[i]) for line in [*lines, *cells]) for i in range(len(table.head))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in [*lines, *cells]
    ]
    return "\n".join([table.title, *("  " + line for line in text)])


def _wrapped(name: str, width: int) -> list[str]:
    lines = [""]
    for word in name.split():
        joined = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(joined) > max(width, 9):
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def as_markdown(table: Table) -> str:
    rows = [table.head, ["---"] * len(table.head), *[[str(c) for c in row] for row in table.rows]]
    return f"{table.caption}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def as_dict(audit: Audit) -> dict[str, Any]:
    """Everything but the pictures, for JSON. Long lists of names are cut, with their length beside them."""
    names = [one.name for one in audit.looks]
    crossing = {kind: across(audit, kind) for kind in KINDS}
    return {
        "findings": [vars(finding) for finding in audit.findings],
        "splits": {split.name: _split(split) for split in audit.splits},
        "grids": [grid.name for grid in audit.grids],
        "duplicates": {
            "compared": audit.duplicates.compared,
            "pairs": {kind: len(audit.duplicates.of_kind(kind)) for kind in KINDS[1:]},
            "identical_groups": [[names[i] for i in m] for m in audit.duplicates.identical[:_LISTED]],
            "twins": [
                [names[t.a], names[t.b], t.kind, t.score, t.orientation] for t in audit.duplicates.twins[:_LISTED]
            ],
            "across": {
                kind: {
                    f"{a} and {b}": {
                        "images": [len({i for i, _ in links}), len({j for _, j in links})],
                        "pairs": len(links),
                        "first": [[names[i], names[j]] for i, j in links[:_LISTED]],
                    }
                    for (a, b), links in crossing[kind].items()
                }
                for kind in KINDS
            },
            "conflicting_masks": [[names[a], names[b], round(iou, 3)] for a, b, iou in conflicts(audit)[:_LISTED]],
            "groups_across": {f"{a} and {b}": g[:_LISTED] for (a, b), g in crossing_groups(audit).items()},
        },
        "tables": [{"title": t.title, "head": t.head, "rows": t.rows, "caption": t.caption} for t in tables(audit)],
    }


def _split(split: SplitAudit) -> dict[str, Any]:
    test = split.alignment
    return {
        "pairs": len(split.looks),
        "problems": split.problems[:_LISTED],
        "pairing": None
        if test is None
        else {"tested": test.tested, "own": test.own, "sure": test.sure, "turned": test.turned},
        "survival": [
            {"area": b.name, "lesions": b.lesions, "vanished": b.vanished.tolist(), "shrunk": b.shrunk.tolist()}
            for b in split.survival
        ],
        "law": [
            {
                "side": w.side,
                "resize": w.resize,
                "r_edges": R_EDGES,
                "r_shares_first_is_zero": w.histogram(),
                "blank": w.blank,
                "lost": w.lost,
                "saturated": w.saturated,
                "mean_weight": float(w.mean_weight.mean()),
            }
            for w in split.weights
        ],
        "autoencoder": None if split.fading is None else [vars(line) for line in split.fading.bins],
    }
