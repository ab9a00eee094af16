"""Which images and patients stand on both sides of a split, and which equal images were labelled differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laworder.data.audit.look import overlap

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit

AGREE = 0.7
"""Masks of one image that overlap by less (IoU) are in conflict."""
_PAIRS_OF_A_GROUP = 500


def across(audit: Audit, kind: str) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """(split, other split) → pairs of images, one from each, that are of one kind.

    A pair that two equal images stand behind counts for both: an image and its near twin leak wherever either's copies
    lie.
    """
    order = {split.name: k for k, split in enumerate(audit.splits)}
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for a, b in links_of(audit, kind):
        first, second = sorted((a, b), key=lambda i: (order[audit.looks[i].split], i))
        sides = (audit.looks[first].split, audit.looks[second].split)
        if sides[0] != sides[1]:
            found.setdefault(sides, set()).add((first, second))
    return {sides: sorted(pairs) for sides, pairs in sorted(found.items())}


def links_of(audit: Audit, kind: str) -> Iterator[tuple[int, int]]:
    """Every pair of one kind, with the copies that stand behind each end."""
    behind = {members[0]: members for members in audit.duplicates.identical}
    if kind == "identical":
        for members in behind.values():
            # A group of hundreds (black frames) is told by its first members; its pairs would be tens of thousands.
            few = members if len(members) <= _PAIRS_OF_A_GROUP else members[:_PAIRS_OF_A_GROUP]
            yield from ((a, b) for k, a in enumerate(few) for b in few[k + 1 :])
        return
    for twin in audit.duplicates.of_kind(kind):
        yield from ((a, b) for a in behind.get(twin.a, [twin.a]) for b in behind.get(twin.b, [twin.b]))


def crossing_groups(audit: Audit) -> dict[tuple[str, str], list[str]]:
    """(split, other split) → groups that are in both. Groups that repeat the name say nothing and are left out."""
    groups = [{one.group for one in split.looks if one.group != one.name} for split in audit.splits]
    found: dict[tuple[str, str], list[str]] = {}
    for k, split in enumerate(audit.splits):
        for other in range(k + 1, len(audit.splits)):
            if shared := sorted(groups[k] & groups[other]):
                found[split.name, audit.splits[other].name] = shared
    return found


def conflicts(audit: Audit) -> list[tuple[int, int, float]]:
    """Pairs of one image (identical, copies, mirrored copies) whose masks differ: IoU under `AGREE`, worst first."""
    pairs = [(m[0], other, "upright") for m in audit.duplicates.identical for other in m[1:]]
    pairs += [(t.a, t.b, t.orientation) for t in audit.duplicates.twins if t.kind in ("copy", "mirrored")]
    scored = [(a, b, overlap(audit.looks[a], audit.looks[b], turned)) for a, b, turned in pairs]
    return sorted((pair for pair in scored if pair[2] < AGREE), key=lambda pair: pair[2])


KINDS_OF_PAIRS = ("identical", "copy", "near", "mirrored")


def picked_pairs(audit: Audit, kind: str, most: int) -> tuple[list[tuple[int, int]], int]:
    """Pairs to look at, those across splits first, no image twice while there are others; and how many there are."""
    crossing = [pair for pairs in across(audit, kind).values() for pair in pairs]
    known = set(crossing)
    links = [
        *crossing,
        *(pair for pair in links_of(audit, kind) if tuple(sorted(pair)) not in known and pair not in known),
    ]
    chosen: list[tuple[int, int]] = []
    seen: set[int] = set()
    for a, b in links:
        if len(chosen) < most and a not in seen and b not in seen:
            chosen.append((a, b))
            seen |= {a, b}
    return chosen, len(links)
