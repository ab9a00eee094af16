"""Does a lesion come through an autoencoder? What a latent diffusion model cannot encode, it cannot draw.

Of each lesion two things are kept: its *contrast*, the difference of its mean colour from that of a band of 4 pixels
around it, projected on what it was before (1: as before, 0: gone); and the error inside it (PSNR), beside that of the
whole image. A lesion whose contrast falls under 0.8 of what it was counts as faded, under 0.2 as gone; lesions that
hardly differed from their surroundings to begin with (under 8 of 255) are counted apart, since nothing can be said.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, UInt8
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from laworder.data.audit.autoencoder import Reconstruct
from laworder.data.audit.components import label
from laworder.data.audit.masks import SPECK
from laworder.data.audit.survival import SIZE_EDGES
from laworder.data.pairs import Source, resize_pair
from laworder.errors import UserError

FADED, GONE = 0.8, 0.2
VISIBLE = 8 / 127.5
RING = 4
_BATCH = 8


@dataclass(frozen=True)
class Lesion:
    """area: share of the picture; before: contrast of the original, in [−1, 1] units; kept: share of it left;
    psnr: inside the lesion"""

    area: float
    before: float
    kept: float
    psnr: float


@dataclass(frozen=True)
class FadeBin:
    """Lesions between two shares of the picture; `contrast` and `psnr` are medians, the rest are shares of `lesions`,
    the visible ones; `faint` were not visible before."""

    name: str
    lesions: int
    faint: int
    contrast: float
    faded: float
    gone: float
    psnr: float


@dataclass(frozen=True)
class Fading:
    """size: side of the images; images: how many were put through; psnr: mean over them; bins: by lesion size"""

    size: int
    images: int
    psnr: float
    bins: list[FadeBin]
    faded_most: list[tuple[float, int]]
    """Pairs with the lesions that lost most: (share left, pair's number)."""


def fading(
    source: Source, chosen: Sequence[int], reconstruct: Reconstruct, *, size: int, progress: bool = False
) -> Fading:
    """Put the chosen pairs of a source through an autoencoder."""
    psnrs: list[float] = []
    lesions: list[tuple[int, Lesion]] = []
    for start in tqdm(
        range(0, len(chosen), _BATCH), desc="round trip", disable=None if progress else True, leave=False
    ):
        part = chosen[start : start + _BATCH]
        pairs = [resize_pair(source.read(i), size, 3) for i in part]
        images = torch.stack([_signed(image) for image, _ in pairs])
        after = reconstruct(images)
        if after.shape != images.shape:
            raise UserError(f"the autoencoder made {list(after.shape)} of images of shape {list(images.shape)}")
        for i, (_, mask), x, y in zip(part, pairs, images, after.float().clamp(-1, 1), strict=True):
            psnrs.append(_psnr(x, y))
            lesions += [(i, one) for one in lesions_of(x, y, mask > 0)]
    most = sorted((one.kept, i) for i, one in lesions if one.before >= VISIBLE)
    return Fading(size, len(chosen), float(np.mean(psnrs)) if psnrs else float("nan"), _bins(lesions), most[:6])


def lesions_of(
    before: Float32[Tensor, "3 h w"], after: Float32[Tensor, "3 h w"], mask: Bool[np.ndarray, "h w"]
) -> list[Lesion]:
    """What each lesion of one image kept."""
    labels, count = label(mask)
    found: list[Lesion] = []
    anywhere = torch.from_numpy(mask)
    for k in range(1, count + 1):
        inside = torch.from_numpy(labels == k)
        around = _grown(inside) & ~anywhere
        if int(inside.sum()) < SPECK or not bool(around.any()):
            continue
        old, new = (x[:, inside].mean(dim=1) - x[:, around].mean(dim=1) for x in (before, after))
        strength = float(old.norm() / 3**0.5)
        kept = float((old * new).sum() / (old * old).sum().clamp(min=1e-8))
        found.append(Lesion(float(inside.float().mean()), strength, kept, _psnr(before[:, inside], after[:, inside])))
    return found


def _grown(inside: Tensor) -> Tensor:
    return F.max_pool2d(inside[None, None].float(), 2 * RING + 1, 1, RING)[0, 0] > 0


def _psnr(a: Tensor, b: Tensor) -> float:
    """In decibels; values run from −1 to 1, so the peak is 2."""
    return float(10 * torch.log10(4 / F.mse_loss(a, b).clamp(min=1e-10)))


def _signed(image: UInt8[np.ndarray, "h w 3"]) -> Float32[Tensor, "3 h w"]:
    return torch.from_numpy(image).permute(2, 0, 1).float() / 127.5 - 1


def _bins(lesions: Sequence[tuple[int, Lesion]]) -> list[FadeBin]:
    bins: list[FadeBin] = []
    for low, high in [*itertools.pairwise(SIZE_EDGES), (0.0, 1.0)]:
        here = [one for _, one in lesions if low < one.area <= high]
        kept: Float64[np.ndarray, " n"] = np.array([one.kept for one in here if one.before >= VISIBLE])
        if len(here):
            name = "all" if (low, high) == (0.0, 1.0) else f"{100 * low:g}–{100 * high:g} %"
            middle, faded, gone = (
                (float(np.median(kept)), float((kept < FADED).mean()), float((kept < GONE).mean()))
                if len(kept)
                else (float("nan"),) * 3
            )
            psnr = float(np.median([one.psnr for one in here]))
            bins.append(FadeBin(name, len(kept), len(here) - len(kept), middle, faded, gone, psnr))
    return bins


def roundtrip_picture(
    image: UInt8[np.ndarray, "size size 3"], reconstruct: Reconstruct
) -> UInt8[np.ndarray, "size size 3"]:
    """One picture after the round trip, for looking at."""
    after = reconstruct(_signed(image)[None])[0].float().clamp(-1, 1)
    return ((after.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy()
