"""Which images and patients stand on both sides of a split, and which equal images were labelled differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from laworder.data.audit.duplicates import Duplicates, turn
from laworder.data.audit.look import Look
from laworder.data.pairs import Source
from laworder.data.parallel import over_cores

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit

AGREE = 0.7
"""Masks of one image that overlap by less (IoU) are in conflict."""
SAME = 0.98
"""Twins from this score on are one image: below it, a lesion may have moved between two frames."""
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


class Conflict(NamedTuple):
    """One image twice, with masks that overlap by `overlap` (IoU) once they lie the same way round."""

    a: int
    b: int
    overlap: float


def conflicts(looks: Sequence[Look], found: Duplicates, sources: Mapping[str, Source]) -> list[Conflict]:
    """Pairs of one image (identical, re-encoded, mirrored) whose masks differ: IoU under `AGREE`, worst first."""
    pairs = [(m[0], other, "upright") for m in found.identical for other in m[1:]]
    pairs += [(t.a, t.b, t.orientation) for t in found.twins if t.score >= SAME]
    pairs = [p for p in pairs if p[2] != "upright" or looks[p[0]].mask_digest != looks[p[1]].mask_digest]
    overlaps = [1.0] * len(pairs)

    def compare(index: int) -> None:
        a, b, turned = pairs[index]
        first, second = (sources[looks[i].split].read(looks[i].index).mask for i in (a, b))
        overlaps[index] = overlap(turn(torch.tensor(first), turned).numpy(), second)

    over_cores(compare, len(pairs))
    scored = [Conflict(a, b, share) for (a, b, _), share in zip(pairs, overlaps, strict=True) if share < AGREE]
    return sorted(scored, key=lambda one: (one.overlap, one.a, one.b))


def overlap(a: UInt8[np.ndarray, "h w"], b: UInt8[np.ndarray, "h2 w2"]) -> float:
    """Intersection over union of two masks, the first at the second's size; 1 where both are empty."""
    first, second = (a > 0).astype(np.uint8), b > 0
    if first.shape != second.shape:
        first = np.asarray(Image.fromarray(first).resize(second.shape[::-1], Image.Resampling.NEAREST))
    either = int(((first > 0) | second).sum())
    return int(((first > 0) & second).sum()) / either if either else 1.0


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
