"""The audit as a record for JSON: everything but the pictures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from laworder.data.audit.leaks import KINDS_OF_PAIRS, across, crossing_groups
from laworder.data.audit.survival import RESIZES
from laworder.data.audit.weights import R_EDGES

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit, SplitAudit

LISTED = 200


def as_dict(audit: Audit, *, listed: int = LISTED) -> dict[str, Any]:
    """Lists of names are cut after `listed`, with their length beside them."""
    return {
        "findings": [vars(finding) for finding in audit.findings],
        "splits": {split.name: _split(audit, split, listed) for split in audit.splits},
        "duplicates": _duplicates(audit, listed),
    }


def as_json(record: dict[str, Any]) -> str:
    """Readable JSON: lists of plain values stand on one line, numbers have four digits after the point."""
    text = json.dumps(_rounded(record), indent=1, ensure_ascii=False)
    # No string holds a line break, so that these are lists and nothing else.
    return re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda found: f"[{_one_line(found[1])}]", text) + "\n"


def _one_line(items: str) -> str:
    return re.sub(r",\n\s+", ", ", items)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if value == value else None  # NaN is no JSON
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _duplicates(audit: Audit, listed: int) -> dict[str, Any]:
    names = [one.full_name for one in audit.looks]
    found = audit.duplicates
    crossing = {kind: across(audit, kind) for kind in KINDS_OF_PAIRS}
    return {
        "compared": found.compared,
        "identical_groups": len(found.identical),
        "twins": {kind: _scores([t.score for t in found.of_kind(kind)]) for kind in KINDS_OF_PAIRS[1:]},
        "first_identical_groups": [[names[i] for i in m] for m in found.identical[:listed]],
        "first_twins": {
            kind: [[names[t.a], names[t.b], t.score, t.orientation] for t in found.of_kind(kind)[:listed]]
            for kind in KINDS_OF_PAIRS[1:]
        },
        "across": {
            kind: {
                f"{a} and {b}": {
                    "images": [len({i for i, _ in links}), len({j for _, j in links})],
                    "pairs": len(links),
                    "first": [[names[i], names[j]] for i, j in links[:listed]],
                }
                for (a, b), links in crossing[kind].items()
            }
            for kind in KINDS_OF_PAIRS
        },
        "conflicting_masks": len(audit.conflicts),
        "first_conflicting_masks": [[names[a], names[b], iou] for a, b, iou in audit.conflicts[:listed]],
        "groups_across": {f"{a} and {b}": g[:listed] for (a, b), g in crossing_groups(audit).items()},
    }


def _scores(scores: list[float]) -> dict[str, Any]:
    return {"pairs": len(scores), "lowest_and_median_score": np.quantile(scores, (0, 0.5)).tolist() if scores else []}


def _split(audit: Audit, split: SplitAudit, listed: int) -> dict[str, Any]:
    test, masks = split.alignment, [one.mask for one in split.looks]
    return {
        "pairs": len(split.looks),
        "problems": split.problems[:listed],
        "masks": {
            "lesions": sum(m.lesions for m in masks),
            "specks": sum(m.specks for m in masks),
            "empty": sum(m.empty for m in masks),
            "full": sum(m.full for m in masks),
            "at_border": sum(m.border for m in masks),
            "soft": sum(m.file is not None and m.file.levels > 2 for m in masks),
        },
        "pairing": None
        if test is None
        else {"tested": test.tested, "own": test.own, "sure": test.sure, "turned": test.turned},
        "survival": [
            {
                "area": b.name,
                "lesions": b.lesions,
                **{
                    f"{grid.name}, {how}": {"vanished": float(b.vanished[g, k]), "shrunk": float(b.shrunk[g, k])}
                    for g, grid in enumerate(audit.grids)
                    for k, how in enumerate(RESIZES)
                },
            }
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
