"""Bring a mask of any resolution to the latents' grid.

The paper resizes "with nearest-neighbor interpolation" and reduces to one channel "when needed". Nearest has two
readings; ours samples the centre of each cell (torch's `nearest-exact`, also Pillow's and scikit-image's reading),
because torch's older `nearest` samples the corner and so shifts every lesion by half a latent pixel (3.5 image pixels
at 384 → 48). The corner reading stays reachable as `nearest_corner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from laworder.errors import UserError, nearest


def _centre(mask: Tensor, size: list[int]) -> Tensor:
    return F.interpolate(mask, size=size, mode="nearest-exact")


def _corner(mask: Tensor, size: list[int]) -> Tensor:
    return F.interpolate(mask, size=size, mode="nearest")


def _area(mask: Tensor, size: list[int]) -> Tensor:
    pool = F.adaptive_avg_pool2d if mask.ndim == 4 else F.adaptive_avg_pool3d
    return pool(mask, cast("Any", size))


def _any(mask: Tensor, size: list[int]) -> Tensor:
    pool = F.adaptive_max_pool2d if mask.ndim == 4 else F.adaptive_max_pool3d
    return pool(mask, size)


RESIZES: Final[dict[str, Callable[[Tensor, list[int]], Tensor]]] = {
    "nearest": _centre,
    "nearest_corner": _corner,
    "area": _area,
    "any": _any,
}
"""`nearest`: the value at the cell's centre (the paper). `nearest_corner`: at its first corner (torch's `nearest`).
`area`: the mean over the cell, which keeps r and makes the mask soft. `any`: the maximum over the cell, so that no
lesion pixel is ever lost, and small lesions grow to whole cells."""


def check_resize(name: str) -> str:
    """The name itself, if it is one of `RESIZES`."""
    if name not in RESIZES:
        raise UserError(f"resize is {name!r}{nearest(name, RESIZES)}")
    return name


def latent_mask(
    mask: Float[Tensor, "b k *full"], size: Sequence[int], *, resize: str = "nearest"
) -> Float[Tensor, "b k *size"]:
    """The mask at the latents' size. Values are clamped to [0, 1], so a 0/255 float mask means what it shows."""
    return RESIZES[resize](mask, list(size)).clamp(0.0, 1.0)


def as_classes(mask: Float[Tensor, "b k *size"], classes: int) -> Float[Tensor, "b classes *size"]:
    """One channel per lesion class. With a single class, channels are averaged (an RGB mask is a grey one)."""
    return mask if mask.shape[1] == classes else mask.mean(dim=1, keepdim=True)


def union(m: Float[Tensor, "b k *size"]) -> Float[Tensor, "b 1 *size"]:
    """Lesion of any class: min(1, Σ_k m_k)."""
    return m if m.shape[1] == 1 else m.sum(dim=1, keepdim=True).clamp(max=1.0)


def vanished(full: Float[Tensor, "b k *full"], m: Float[Tensor, "b k2 *size"]) -> Bool[Tensor, " b"]:
    """Samples that lost a lesion class altogether on the way to the latents' grid."""
    axes = tuple(range(2, m.ndim))
    before, after = full.amax(dim=axes) > 0, m.amax(dim=axes) > 0
    if before.shape[1] != after.shape[1]:
        before = before.any(dim=1, keepdim=True)
    return (before & ~after).any(dim=1)


def border_band(inside: Float[Tensor, "b 1 *size"], *, width: int = 1) -> Float[Tensor, "b 1 *size"]:
    """1 within `width` cells of the lesion's edge, on either side of it, for a mask of zeros and ones.

    The band is where a dilation of the lesion meets a dilation of its complement.
    """
    pool = F.max_pool2d if inside.ndim == 4 else F.max_pool3d
    both = torch.cat([inside, 1.0 - inside], dim=1)
    return pool(both, 2 * width + 1, stride=1, padding=width).amin(dim=1, keepdim=True)
