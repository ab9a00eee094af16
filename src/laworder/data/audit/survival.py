"""Will this lesion survive? What is left of each lesion at the size a network sees, and on the latents' grid.

A mask goes the way that training takes it: to size S by nearest neighbour, as every loader here does, and from there
to the latents' S / 8 by nearest neighbour, as LAW does by default (`laworder.law.masks`). Nearest keeps the pixel at a
cell's centre, so a lesion narrower than a cell is kept or lost by luck. `area` keeps a cell where at least half of it
is lesion. (LAW's own `resize="area"` keeps the soft share and loses nothing; `resize="any"` keeps every cell that the
lesion touches, and only grows.)

A lesion's *kept* share is its area afterwards over its area before, both as shares of the picture: 0 is vanished, under
0.8 is shrunk, and nearest may also leave it larger.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int32, Int64
from PIL import Image

from laworder.law.masks import RESIZES as LAW_RESIZES

SHRUNK = 0.8
SIZE_EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)
"""Lesion sizes by share of the picture."""
RESIZES = ("nearest", "area")


@dataclass(frozen=True)
class Grid:
    """`side`² cells, reached from the picture at `size`²; the picture itself where both are equal."""

    size: int
    side: int

    @property
    def name(self) -> str:
        return f"{self.size} px" if self.side == self.size else f"latents {self.side} (of {self.size} px)"


def grids(sizes: Sequence[int], factor: int) -> tuple[Grid, ...]:
    """Every size, then the latents' grid of every size."""
    return tuple(Grid(s, s) for s in sizes) + tuple(Grid(s, max(1, s // factor)) for s in sizes)


@dataclass(frozen=True)
class Fates:
    """area: each lesion's share of the picture; kept: its share left, by grid and then by resize (`RESIZES`);
    cells: the grid's lesion cells under nearest, and under "any" (every cell touched), by grid"""

    area: Float64[np.ndarray, " n"]
    kept: Float32[np.ndarray, "n grids 2"]
    cells: Int64[np.ndarray, "grids 2"]


def fates(
    labels: Int32[np.ndarray, "h w"], sizes: Int32[np.ndarray, " n"], wanted: Sequence[Grid], least: int
) -> Fates:
    """What becomes of the lesions of at least `least` pixels; specks only count in `cells`."""
    lesions = np.flatnonzero(sizes >= least) + 1
    area = sizes[lesions - 1] / labels.size
    kept = np.zeros((len(lesions), len(wanted), 2), dtype=np.float32)
    cells = np.zeros((len(wanted), 2), dtype=np.int64)
    if len(sizes):
        for g, grid in enumerate(wanted):
            before = labels if grid.side == grid.size else nearest(labels, grid.size)
            after = labels_on(before, grid)
            cells[g] = (after > 0).sum(), touched(before > 0, grid.side)
            counts = np.bincount(after.ravel(), minlength=len(sizes) + 1)[lesions]
            kept[:, g, 0] = counts / grid.side**2 / area
            covered = np.array([half_covered(before, int(k), grid.side) for k in lesions], dtype=np.float64)
            kept[:, g, 1] = covered / grid.side**2 / area
    return Fates(area, kept, cells)


def nearest(labels: Int32[np.ndarray, "h w"], side: int) -> Int32[np.ndarray, "side side"]:
    """The value at each cell's centre, by Pillow itself, as the loaders do it.

    Where a centre falls between two pixels, as in an enlargement by a half, Pillow's sums decide which one it is.
    """
    if labels.shape == (side, side):
        return labels
    return np.asarray(Image.fromarray(labels).resize((side, side), Image.Resampling.NEAREST))


def labels_on(before: Int32[np.ndarray, "h w"], grid: Grid) -> Int32[np.ndarray, "side side"]:
    """From the picture at the grid's size to its cells: the same grid by Pillow, latents as LAW does it."""
    if grid.side == grid.size:
        return nearest(before, grid.side)
    rows, columns = (_centres(n, grid.side) for n in before.shape)
    return before[np.ix_(rows, columns)]


@lru_cache(maxsize=64)
def _centres(length: int, side: int) -> Int64[np.ndarray, " side"]:
    """Which pixels LAW's "nearest" takes of a row: a row of numbers, resized by it, says so itself."""
    numbers = torch.arange(length, dtype=torch.float32)[None, None, None]
    return LAW_RESIZES["nearest"](numbers, [1, side])[0, 0, 0].numpy().astype(np.int64)


def touched(inside: np.ndarray, side: int) -> int:
    """Cells that hold any lesion pixel (LAW's resize "any")."""
    by_row = _any_of(inside, side)
    return int(_any_of(by_row.T, side).sum())


def _any_of(inside: np.ndarray, side: int) -> np.ndarray:
    """The maximum over each of `side` bins of rows, bins overlapping as adaptive pooling has them."""
    height = inside.shape[0]
    sums = np.concatenate([np.zeros((1, inside.shape[1]), dtype=np.int32), np.cumsum(inside, axis=0, dtype=np.int32)])
    k = np.arange(side)
    return sums[-(-(k + 1) * height // side)] - sums[k * height // side] > 0


def half_covered(labels: Int32[np.ndarray, "h w"], lesion: int, side: int) -> int:
    """Cells of which lesion number `lesion` covers at least half, edges of cells through pixels included."""
    inside = labels == lesion
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    if len(rows) == 0:
        return 0
    box = inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.float64)
    down = _binned(box, int(rows[0]), labels.shape[0], side)
    return int((_binned(down.T, int(columns[0]), labels.shape[1], side) >= 0.5 - 1e-9).sum())


def _binned(x: Float64[np.ndarray, "h w"], start: int, length: int, side: int) -> Float64[np.ndarray, "cells w"]:
    """The mean over each cell along the first axis, pixels that a cell's edge cuts in part.

    x lies at `start` on an axis of `length` pixels and is 0 beyond; only the cells that it reaches are returned.
    """
    first, last = start * side // length, -(-(start + len(x)) * side // length)
    edges = np.clip(np.arange(first, last + 1) * (length / side) - start, 0, len(x))
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0), np.zeros((1, x.shape[1]))])
    whole = np.minimum(edges.astype(np.int64), len(x))
    inner = np.concatenate([x, np.zeros((1, x.shape[1]))])
    upto = sums[whole] + (edges - whole)[:, None] * inner[whole]
    return np.diff(upto, axis=0) * (side / length)


@dataclass(frozen=True)
class SizeBin:
    """Lesions between two shares of the picture: how many, and which share of them vanished or shrank, by grid and
    resize. Shrunk includes vanished."""

    low: float
    high: float
    lesions: int
    vanished: Float64[np.ndarray, "grids 2"]
    shrunk: Float64[np.ndarray, "grids 2"]

    @property
    def name(self) -> str:
        return "all" if (self.low, self.high) == (0.0, 1.0) else f"{100 * self.low:g}–{100 * self.high:g} %"


def by_size(found: Sequence[Fates]) -> list[SizeBin]:
    """The lesions of many masks by size, the line "all" last; sizes without a lesion are left out."""
    if not found:
        return []
    area, kept = np.concatenate([f.area for f in found]), np.concatenate([f.kept for f in found])
    bins = [*itertools.pairwise(SIZE_EDGES), (0.0, 1.0)]
    lines: list[SizeBin] = []
    for low, high in bins:
        here = kept[(area > low) & (area <= high)]
        if len(here):
            lines.append(SizeBin(low, high, len(here), (here == 0).mean(axis=0), (here < SHRUNK).mean(axis=0)))
    return lines
