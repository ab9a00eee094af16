"""Connected lesions of a mask: runs of pixels in rows, joined where they touch from row to row (8 neighbours)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Int32


def label(mask: Bool[np.ndarray, "h w"]) -> tuple[Int32[np.ndarray, "h w"], int]:
    """0 for the background and 1 … n for the lesions, in the order of their first pixel; and n."""
    height, width = mask.shape
    stride = width + 2  # an empty column on either side keeps the runs of one row out of the next
    padded = np.zeros((height, stride), dtype=np.int8)
    padded[:, 1:-1] = mask
    steps = np.diff(padded.ravel(), prepend=np.int8(0))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    if len(starts) == 0:
        return np.zeros(mask.shape, dtype=np.int32), 0
    numbers = _numbered(_roots(len(starts), *_touching(starts, ends, stride)))
    change = np.zeros(padded.size + 1, dtype=np.int32)
    change[starts], change[ends] = numbers, -numbers
    return np.cumsum(change, dtype=np.int32)[:-1].reshape(height, stride)[:, 1:-1].copy(), int(numbers.max())


def _touching(
    starts: Int[np.ndarray, " n"], ends: Int[np.ndarray, " n"], stride: int
) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """Pairs (upper, lower) of runs in neighbouring rows that touch, corners included."""
    first = np.searchsorted(ends + stride, starts, side="left")
    last = np.searchsorted(starts + stride, ends, side="right")
    counts = np.maximum(last - first, 0)
    lower = np.repeat(np.arange(len(starts)), counts)
    within = np.arange(len(lower)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within, lower


def _roots(count: int, a: Int[np.ndarray, " m"], b: Int[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
    """The smallest member of everything's connected set, by pulling roots down until nothing moves."""
    root = np.arange(count)
    while True:
        low = np.minimum(root[a], root[b])
        if np.array_equal(root[a], root[b]):
            return root
        np.minimum.at(root, root[a], low)
        np.minimum.at(root, root[b], low)
        while not np.array_equal(root, root[root]):
            root = root[root]


def _numbered(roots: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return np.unique(roots, return_inverse=True)[1] + 1


def groups_of_links(count: int, links: list[tuple[int, int]]) -> list[list[int]]:
    """Sets of two or more of 0 … count − 1 that the links hold together, each sorted, in order."""
    if not links:
        return []
    pairs = np.array(links)
    roots = _roots(count, pairs[:, 0], pairs[:, 1])
    members: dict[int, list[int]] = {}
    for i in np.unique(pairs).tolist():
        members.setdefault(int(roots[i]), []).append(i)
    return [members[key] for key in sorted(members)]
