"""Where in a picture a lesion may lie: inside what the camera or the scanner saw."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch.nn import functional as F

from laworder.data.audit.components import label

DARK = 20
"""Gray level up to which a pixel counts as dark. Black borders carry the noise of JPEG, the air around a head that of
the receiver; both stay below it. Where the picture's edge is a little brighter (some processors frame their pictures
in dark gray), the level follows it."""
_GRAY_FRAME, _NOISE = 32, 8
_LEAST = 0.15  # of the picture: a smaller field is no field, but a dark picture


def field_of_view(image: UInt8[np.ndarray, "h w c"]) -> Bool[np.ndarray, "h w"]:
    """What lies inside the dark surround of an endoscope's picture, or inside the outline of a head or a body.

    The surround is what is dark and connected with the picture's edge; dark places inside belong to the field. Gaps of
    up to 1/16 of the side in the outline are closed first, and writing in the dark surround is dropped. A picture
    without a surround, or dark almost everywhere, is all field.
    """
    side = min(image.shape[:2])
    level = _calmed(image.max(axis=2))
    bright = level > _darkest(level)
    closed = shrunk(grown(bright, side // 32), side // 32)
    surround, _ = label(~closed)
    edge = np.unique(np.concatenate([surround[0], surround[-1], surround[:, 0], surround[:, -1]]))
    inside = ~np.isin(surround, edge[edge > 0])
    inside = largest(grown(shrunk(inside, side // 24), side // 24) & inside)
    return inside if inside.mean() >= _LEAST else np.ones_like(inside)


def _calmed(level: UInt8[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Means over 5×5 pixels, without the noise of the receiver."""
    values = torch.from_numpy(level).float()[None, None]
    return F.avg_pool2d(F.pad(values, (2, 2, 2, 2), mode="replicate"), 5, 1)[0, 0].numpy()


def _darkest(level: Float[np.ndarray, "h w"]) -> float:
    """The highest level that is dark."""
    edge = np.concatenate([level[0], level[-1], level[:, 0], level[:, -1]])
    frame = float(np.percentile(edge, 10))
    return max(DARK, frame + _NOISE) if frame <= _GRAY_FRAME else DARK


def union_field(seen: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """The field where no image tells it: wherever any real mask has a lesion and a little around, gaps closed."""
    reach = max(1, min(seen.shape) // 16)
    return shrunk(grown(seen, 2 * reach), reach) | seen


def largest(mask: Bool[np.ndarray, "h w"], keep: int = 1) -> Bool[np.ndarray, "h w"]:
    """The `keep` largest connected parts."""
    parts, count = label(mask)
    if count <= keep:
        return mask
    sizes = np.bincount(parts.ravel(), minlength=count + 1)[1:]
    # A stable sort: of equal parts the first stays.
    return np.isin(parts, 1 + np.argsort(-sizes, kind="stable")[:keep])


def grown(mask: Bool[np.ndarray, "h w"], reach: int) -> Bool[np.ndarray, "h w"]:
    """All pixels within `reach` of the mask, by an octagon: a square, then a diamond of the rest."""
    if reach < 1:
        return mask
    square = round(reach * (math.sqrt(2) - 1))
    for _ in range(square):
        mask = _with_neighbours(mask, axis=0)
        mask = _with_neighbours(mask, axis=1)
    for _ in range(reach - square):
        mask = _with_neighbours(mask, axis=0) | _with_neighbours(mask, axis=1)
    return mask


def _with_neighbours(mask: Bool[np.ndarray, "h w"], *, axis: int) -> Bool[np.ndarray, "h w"]:
    result = mask.copy()
    ahead, behind = (slice(None),) * axis + (slice(1, None),), (slice(None),) * axis + (slice(None, -1),)
    result[ahead] |= mask[behind]
    result[behind] |= mask[ahead]
    return result


def shrunk(mask: Bool[np.ndarray, "h w"], reach: int) -> Bool[np.ndarray, "h w"]:
    """What is left when everything within `reach` of the outside goes; the picture's edge is no outside."""
    return ~grown(~mask, reach)
