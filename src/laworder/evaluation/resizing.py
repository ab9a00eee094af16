"""An image as the FID programs hand it to Inception: how it gets to 299×299, and to [−1, 1].

The programs differ, and FID with them; so the rule is named beside every number.

- pytorch-fid: bilinear between pixel centres, without antialiasing, of x / 255; then 2x − 1.
- torch-fidelity: bilinear as TensorFlow 1 did it, from pixel corners, of x; then (x − 128) / 128.

An image that is 299×299 already is left as it is by both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

SIDE = 299
_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}


def rgb(image: UInt8[np.ndarray, "h w c"]) -> UInt8[np.ndarray, "h w 3"]:
    """Gray as three equal channels."""
    return image if image.shape[2] == 3 else np.repeat(image, 3, axis=2)


def pytorch_fid(image: UInt8[np.ndarray, "h w c"]) -> Float32[Tensor, "3 299 299"]:
    """x' = 2 · bilinear(x / 255) − 1, centres at half pixels."""
    x = torch.tensor(rgb(image)).permute(2, 0, 1)[None].float().div_(255)
    return F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)[0].mul_(2).sub_(1)


def torch_fidelity(image: UInt8[np.ndarray, "h w c"]) -> Float32[Tensor, "3 299 299"]:
    """x' = (bilinear(x) − 128) / 128, where row i of 299 is taken at i · height / 299."""
    x = torch.tensor(rgb(image)).permute(2, 0, 1).float()
    for axis in (1, 2):
        low, high, part = _corners(x.shape[axis])
        part = part[:, None] if axis == 1 else part
        below = x.index_select(axis, low)
        x = below + (x.index_select(axis, high) - below) * part
    return x.sub_(128).div_(128)


def _corners(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each of the 299 places: the two pixels around it, and how far it is on the way to the second."""
    place = torch.arange(SIDE, dtype=torch.float32) * (size / SIDE)
    low = place.long().clamp(max=size - 1)
    return low, (low + 1).clamp(max=size - 1), place - low


RULES: dict[str, Callable[[UInt8[np.ndarray, "h w c"]], Float32[Tensor, "3 299 299"]]] = {
    "pytorch-fid": pytorch_fid,
    "torch-fidelity": torch_fidelity,
}


@dataclass(frozen=True)
class Framing:
    """An image as most encoders take it: the short side brought to `short`, the middle cut out, mean and std taken.

    squash: bring both sides to `short` instead, whatever becomes of the proportions
    """

    short: int
    crop: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    filter: str = "bicubic"
    squash: bool = False

    @property
    def words(self) -> str:
        if self.squash:
            return f"both sides to {self.short} ({self.filter})"
        return f"short side to {self.short} ({self.filter}), middle {self.crop}×{self.crop}"

    def __call__(self, image: UInt8[np.ndarray, "h w c"]) -> Float32[Tensor, "3 crop crop"]:
        picture = Image.fromarray(rgb(image))
        scale = self.short / min(picture.size)
        width, height = (max(self.crop, self.short if self.squash else round(side * scale)) for side in picture.size)
        if picture.size != (width, height):
            picture = picture.resize((width, height), _FILTERS[self.filter])
        left, top = (width - self.crop) // 2, (height - self.crop) // 2
        cut = np.array(picture.crop((left, top, left + self.crop, top + self.crop)))
        x = torch.tensor(cut).permute(2, 0, 1).float().div_(255)
        return x.sub_(torch.tensor(self.mean)[:, None, None]).div_(torch.tensor(self.std)[:, None, None])
