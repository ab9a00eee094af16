"""What one mask is like: its values, its lesions, and what is odd about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int32, UInt8

from laworder.data.sources.images import flat, is_deep, open_picture

SPECK = 10
"""Lesions of fewer pixels are specks: slips of the pen, or of a resize. 10 pixels is a square of about 3×3."""
_LISTED = 4


@dataclass(frozen=True)
class MaskFile:
    """levels: how many gray levels the file holds, and the lowest few of them; soft: share of pixels strictly between
    the lowest and the highest; partial: share between a quarter and three quarters, where the threshold decides."""

    levels: int
    first: tuple[float, ...]
    soft: float
    partial: float

    @property
    def text(self) -> str:
        shown = ", ".join(f"{v:g}" for v in self.first)
        return f"{shown}, … ({self.levels} levels)" if self.levels > len(self.first) else shown


@dataclass(frozen=True)
class MaskFacts:
    """area: the lesions' share of the picture; lesions and specks: connected parts of at least and of under `SPECK`
    pixels; border: whether a lesion is cut by the picture's edge; classes: the values of the mask"""

    area: float
    lesions: int
    specks: int
    border: bool
    classes: tuple[int, ...]
    file: MaskFile | None

    @property
    def empty(self) -> bool:
        return self.area == 0

    @property
    def full(self) -> bool:
        return self.area == 1


def mask_facts(
    mask: UInt8[np.ndarray, "h w"], labels: Int32[np.ndarray, "h w"], sizes: Int32[np.ndarray, " n"], file: Path | None
) -> MaskFacts:
    """labels, sizes: the mask's lesions (`components.label`) and their pixels"""
    inside = labels > 0
    edge = bool(inside[0].any() or inside[-1].any() or inside[:, 0].any() or inside[:, -1].any())
    return MaskFacts(
        area=float(inside.mean()),
        lesions=int((sizes >= SPECK).sum()),
        specks=int((sizes < SPECK).sum()),
        border=edge,
        classes=tuple(int(v) for v in np.flatnonzero(np.bincount(mask.ravel(), minlength=1))),
        file=None if file is None else mask_file(file),
    )


def mask_file(path: Path) -> MaskFile:
    """The gray values (of colours: the brightest channel) that a mask's file holds, before any rule."""
    picture, _ = open_picture(path)
    if is_deep(picture) or picture.mode == "P":
        values = np.asarray(picture, dtype=np.float64)
    else:
        pixels = np.asarray(flat(picture))
        values = (pixels.max(axis=2) if pixels.ndim == 3 else pixels).astype(np.float64)
    levels = np.unique(values)
    low, high = float(levels[0]), float(levels[-1])
    share = (values - low) / (high - low) if high > low else np.zeros(values.shape)
    return MaskFile(
        levels=len(levels),
        first=tuple(float(v) for v in levels[:_LISTED]),
        soft=float(((values > low) & (values < high)).mean()),
        partial=float(((share > 0.25) & (share < 0.75)).mean()),
    )
