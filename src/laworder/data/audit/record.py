"""The audit as a record for JSON: everything but the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laworder.data.audit.leaks import KINDS_OF_PAIRS, across, conflicts, crossing_groups
from laworder.data.audit.tables import tables, twin_table
from laworder.data.audit.weights import R_EDGES

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit, SplitAudit

_LISTED = 200


def as_dict(audit: Audit) -> dict[str, Any]:
    """Long lists of names are cut, with their length beside them."""
    names = [one.full_name for one in audit.looks]
    crossing = {kind: across(audit, kind) for kind in KINDS_OF_PAIRS}
    return {
        "findings": [vars(finding) for finding in audit.findings],
        "splits": {split.name: _split(split) for split in audit.splits},
        "grids": [grid.name for grid in audit.grids],
        "duplicates": {
            "compared": audit.duplicates.compared,
            "pairs": {kind: len(audit.duplicates.of_kind(kind)) for kind in KINDS_OF_PAIRS[1:]},
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
                for kind in KINDS_OF_PAIRS
            },
            "conflicting_masks": [[names[a], names[b], round(iou, 3)] for a, b, iou in conflicts(audit)[:_LISTED]],
            "groups_across": {f"{a} and {b}": g[:_LISTED] for (a, b), g in crossing_groups(audit).items()},
        },
        "tables": [
            {"title": t.title, "head": t.head, "rows": t.rows, "caption": t.caption}
            for t in (*tables(audit), twin_table(audit))
        ],
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
