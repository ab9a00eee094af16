"""Polygons → pixels, by the even-odd rule: a pixel is inside where its centre is.

A ray from a pixel's centre to the left crosses the edges of all polygons an odd number of times where the pixel is
inside. A polygon within another is a hole, then, and so is what two polygons share (DICOM's CLOSEDPLANAR_XOR); a
channel that joins a hole to the outside has no width and vanishes. An edge belongs to the pixels right of it and
below it, so that polygons which share an edge share no pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64


def even_odd(
    polygons: Sequence[Float64[np.ndarray, "n 2"]], rows: int, columns: int
) -> Bool[np.ndarray, "rows columns"]:
    """Pixels inside. Corners are given as row and column; pixel (0, 0) has its centre at 0, 0."""
    # crossings[y, x]: edges that cross the line through the centres of row y between the centres x − 1 and x.
    crossings = np.zeros((rows, columns + 1), dtype=np.int64)
    starts, ends = np.concatenate(polygons), np.concatenate([np.roll(polygon, -1, axis=0) for polygon in polygons])
    falling = (starts[:, 0] <= ends[:, 0])[:, None]
    upper, lower = np.where(falling, starts, ends), np.where(falling, ends, starts)
    first, last = (np.clip(np.ceil(corners[:, 0]), 0, rows).astype(np.int64) for corners in (upper, lower))
    # One entry for every row that an edge crosses.
    edge = np.repeat(np.arange(len(starts)), last - first)
    y = np.arange(len(edge)) - np.repeat(np.cumsum(last - first) - last, last - first)
    slope = (lower[edge, 1] - upper[edge, 1]) / (lower[edge, 0] - upper[edge, 0])
    x = upper[edge, 1] + (y - upper[edge, 0]) * slope
    np.add.at(crossings, (y, np.clip(np.ceil(x), 0, columns).astype(np.int64)), 1)
    return np.cumsum(crossings[:, :columns], axis=1) % 2 == 1
