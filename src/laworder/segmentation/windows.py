r"""A picture of any size through a sliding window, in memory that does not grow with its height.

Windows of `side` pixels overlap; each probability map is weighted by a Gaussian around its middle, because a network
knows least at its window's edge, and overlapping maps are averaged: P(x) = Σ_w g(x − c_w) p_w(x) / Σ_w g(x − c_w),
σ = side / 8. One band of windows is held at a time: after it, the rows that no further window touches are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from laworder.errors import UserError
from laworder.runs import Progress

FLOOR = 1e-3
"""Least weight of a pixel, so that the corners of a picture, which one window alone sees, are not 0/0."""

MANY = 20
"""Rows of windows from which on a picture takes long enough for a progress bar of its own."""


class Rows(Protocol):
    """A picture that is read in bands of rows."""

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    def read(self, low: int, high: int) -> UInt8[np.ndarray, "n w c"]:
        """Rows low … high − 1. Calls come in rising order of `low`."""
        ...


class ArrayRows:
    """A picture that is in memory."""

    def __init__(self, pixels: UInt8[np.ndarray, "h w c"]) -> None:
        self.pixels = pixels

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    def read(self, low: int, high: int) -> UInt8[np.ndarray, "n w c"]:
        return self.pixels[low:high]


def gaussian(side: int) -> Float[Tensor, "side side"]:
    """Weights of a window: 1 in its middle, never below `FLOOR`."""
    x = torch.arange(side, dtype=torch.float32) - (side - 1) / 2
    line = torch.exp(-(x**2) / (2 * (side / 8) ** 2))
    return (line[:, None] * line).clamp(min=FLOOR)


def starts(length: int, side: int, overlap: float) -> list[int]:
    """First pixels of windows that cover `length`, spread evenly, overlapping by at least `overlap` of their side."""
    if length <= side:
        return [0]
    step = max(1, int(side * (1 - overlap)))
    count = -(-(length - side) // step) + 1
    return [round(i * (length - side) / (count - 1)) for i in range(count)]


def blend(
    rows: Rows,
    predict: Callable[[UInt8[Tensor, "b c h w"]], Float[Tensor, "b k h w"]],
    *,
    side: int,
    overlap: float,
    batch: int,
) -> Iterator[Float[np.ndarray, "k n w"]]:
    """Probabilities of the whole picture, in bands of rows from top to bottom.

    A picture smaller than the window has its last row and column repeated.
    """
    if not 0 <= overlap < 1:
        raise UserError(f"overlap must be at least 0 and below 1, not {overlap}")
    weight = gaussian(side)
    wide = max(rows.width, side)
    tops, lefts = starts(rows.height, side, overlap), starts(rows.width, side, overlap)
    total: Tensor | None = None
    weights = torch.zeros(side, wide)
    bands = list(zip(tops, [*tops[1:], rows.height], strict=True))
    if len(bands) > MANY:
        bands = Progress(bands, desc="windows", unit="row", leave=False)
    for top, following in bands:
        band = _band(rows, top, side, wide)
        for some in (lefts[i : i + batch] for i in range(0, len(lefts), batch)):
            maps = predict(torch.stack([band[:, :, x : x + side] for x in some]))
            total = torch.zeros(maps.shape[1], side, wide) if total is None else total
            for x, p in zip(some, maps, strict=True):
                total[:, :, x : x + side] += weight * p
                weights[:, x : x + side] += weight
        assert total is not None
        done = min(following, rows.height) - top
        yield (total[:, :done, : rows.width] / weights[:done, : rows.width]).numpy()
        total, weights = _moved(total, done), _moved(weights[None], done)[0]


def _band(rows: Rows, top: int, side: int, wide: int) -> UInt8[Tensor, "c side wide"]:
    pixels = rows.read(top, min(top + side, rows.height))
    missing = ((0, side - pixels.shape[0]), (0, wide - pixels.shape[1]), (0, 0))
    if any(after for _, after in missing):
        pixels = np.pad(pixels, missing, mode="edge")
    return torch.from_numpy(np.array(pixels.transpose(2, 0, 1), order="C"))


def _moved(held: Tensor, done: int) -> Tensor:
    """The rows that later windows still add to, moved to the top; below them, zeros."""
    result = torch.zeros_like(held)
    if done < held.shape[1]:
        result[:, : held.shape[1] - done] = held[:, done:]
    return result
