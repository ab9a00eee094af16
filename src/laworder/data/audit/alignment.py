"""Do the masks belong to these images, and do they lie the right way round?

A mask's *fit* to an image is the product of two ratios along its border, at 96×96:

    contrast  |mean inside − mean outside| / spread, in bands of 3 pixels on either side, the best channel's
    edge      gradient on the border / gradient in a band of 5 pixels around it

One fit says little: some lesions hardly show. But over a set, a mask fits its own image better than it fits another's
in 70 to 95 of 100 cases, and in 50 of 100 where the pairing is shuffled, since lesions lie in similar places in all
images. In the same way a set whose masks all fit better after a flip was flipped on its way. Both are tested on a
sample, each image against its own mask, masks of `OTHERS` other images, and its own mask turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from laworder.data.audit.duplicates import ORIENTATIONS, turn

SIDE = 96
SAMPLE = 240
OTHERS = 4
LEAST = 20
"""Fewer images with a lesion than this are not tested."""
SURE = 3.0
"""Standard errors above one half from which a share counts as more than luck."""
_BATCH = 64


@dataclass(frozen=True)
class Thumb:
    """One image and its mask at 96×96, RGB; index: the pair's number in its split."""

    index: int
    image: UInt8[np.ndarray, "side side 3"]
    mask: UInt8[np.ndarray, "side side"]


@dataclass(frozen=True)
class Alignment:
    """tested: images with a lesion that were compared
    own: mean share of other images' masks that fit worse than an image's own; 0.5 is chance
    sure: how many standard errors `own` lies above 0.5
    turned: orientation → (share of images whose turned mask fits better, standard errors above 0.5)
    worst: the tested images whose mask fits worst beside the others' (share, pair's number), worst first
    """

    tested: int
    own: float
    sure: float
    turned: dict[str, tuple[float, float]]
    worst: list[tuple[float, int]]

    @property
    def shuffled(self) -> bool:
        """Whether the masks fit their images no better than those of others do."""
        return self.tested >= LEAST and self.sure < SURE

    @property
    def flipped(self) -> str | None:
        """The orientation in which the masks fit better than as they are, if there is one."""
        best = max(self.turned, key=lambda name: self.turned[name][0], default=None)
        if best is None or self.tested < LEAST or self.turned[best][1] < SURE or self.turned[best][0] < self.own:
            return None
        return best


def thumb(index: int, image: UInt8[np.ndarray, "h w c"], mask: UInt8[np.ndarray, "h w"]) -> Thumb:
    """The pair as it is tested."""
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).convert("RGB")
    small = Image.fromarray((mask > 0).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.NEAREST)
    return Thumb(index, np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX)), np.asarray(small))


def align(thumbs: Sequence[Thumb], *, seed: int = 0) -> Alignment:
    """The test on a set's sample; images without a lesion take no part."""
    thumbs = [t for t in thumbs if 0 < int(t.mask.sum()) < t.mask.size]
    if len(thumbs) < 2:
        return Alignment(len(thumbs), float("nan"), 0.0, {}, [])
    images = torch.from_numpy(np.stack([t.image for t in thumbs]))
    masks = torch.from_numpy(np.stack([t.mask for t in thumbs]))
    own = fits(images, masks)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(thumbs), generator=generator)
    shares = torch.zeros(len(thumbs))
    others = min(OTHERS, len(thumbs) - 1)
    for k in range(1, others + 1):
        # A cycle through a random order: nobody gets the own mask, nor that of a neighbouring frame but by luck.
        other = torch.empty_like(order)
        other[order] = order.roll(k * max(1, len(order) // (others + 1)))
        shares += _better(own, fits(images, masks[other])) / others
    turned: dict[str, tuple[float, float]] = {}
    for name in ORIENTATIONS:
        if name != "upright":
            ahead = _better(fits(images, turn(masks, name).contiguous()), own)
            turned[name] = (round(float(ahead.mean()), 4), round(_sure(ahead), 2))
    worst = sorted((float(share), float(fit), t.index) for share, fit, t in zip(shares, own, thumbs, strict=True))
    listed = [(share, index) for share, _, index in worst[:12] if share < 0.5]
    return Alignment(len(thumbs), round(float(shares.mean()), 4), round(_sure(shares), 2), turned, listed)


def _better(a: Tensor, b: Tensor) -> Float32[Tensor, " n"]:
    """1 where a is the larger, ½ where both are equal."""
    return 0.5 + 0.5 * torch.sign(a - b)


def _sure(shares: Float32[Tensor, " n"]) -> float:
    """Standard errors of the mean above one half; the spread is at least that of a single doubtful image."""
    error = shares.std().clamp(min=0.5 / len(shares) ** 0.5) / len(shares) ** 0.5
    return float((shares.mean() - 0.5) / error)


def fits(images: UInt8[Tensor, "n side side 3"], masks: UInt8[Tensor, "n side side"]) -> Float32[Tensor, " n"]:
    """The fit of each mask to its image; 0 for a mask without a border."""
    parts = zip(images.split(_BATCH), masks.split(_BATCH), strict=True)
    return torch.cat([_fit(i.permute(0, 3, 1, 2).float() / 255, (m > 0).float()[:, None]) for i, m in parts])


def _fit(image: Float32[Tensor, "n 3 side side"], m: Float32[Tensor, "n 1 side side"]) -> Float32[Tensor, " n"]:
    image = F.avg_pool2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), 3, 1)
    inner, outer = m * _grown(1 - m, 3), (1 - m) * _grown(m, 3)
    inside, outside = _mean(image, inner), _mean(image, outer)
    spread = _mean(image**2, inner) - inside**2 + _mean(image**2, outer) - outside**2
    contrast = ((inside - outside).abs() / (spread.clamp(min=0) + 1e-4).sqrt()).amax(dim=1)
    across = F.pad(image, (1, 1, 0, 0), mode="replicate").diff(dim=3)
    down = F.pad(image, (0, 0, 1, 1), mode="replicate").diff(dim=2)
    steep = (
        ((across[..., 1:] + across[..., :-1]) ** 2 + (down[..., 1:, :] + down[..., :-1, :]) ** 2).sum(1, True).sqrt()
    )
    edge = _mean(steep, _band(m, 1)) / (_mean(steep, _band(m, 5)) + 1e-3)
    return contrast * edge[:, 0]


def _grown(m: Tensor, reach: int) -> Tensor:
    m = F.max_pool2d(m, (2 * reach + 1, 1), 1, (reach, 0))
    return F.max_pool2d(m, (1, 2 * reach + 1), 1, (0, reach))


def _band(m: Tensor, reach: int) -> Tensor:
    return _grown(m, reach) * _grown(1 - m, reach)


def _mean(x: Tensor, where: Tensor) -> Tensor:
    return (x * where).sum(dim=(2, 3)) / where.sum(dim=(2, 3)).clamp(min=1)
