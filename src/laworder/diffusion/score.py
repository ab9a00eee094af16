"""The number that decides which weights are kept, from images drawn for fixed validation masks. It is never the loss.

With a judge (a frozen segmenter trained on real images): the Dice between what it finds in each drawn image and the
mask that the image was drawn for. Without one: how far statistics of intensity and texture, inside and around the
lesions, are from those of the real validation images (`laworder.metrics.realism`), the mean over statistics of
Wasserstein's distance in real standard deviations. The image prior draws without masks; its images are compared by the
same statistics of a disc in the middle.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from laworder.metrics.overlap import count
from laworder.metrics.realism import statistics, wasserstein
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.predictor import Predictor, lesion_probability

Images = UInt8[Tensor, "n c size size"]
Masks = UInt8[Tensor, "n 1 size size"]


class Realism:
    """Distance between drawn and real lesions, one statistic at a time."""

    best = "val_realism"
    mode: Literal["max", "min"] = "min"
    names: tuple[str, ...] = ("val_realism",)
    words = "how far intensity and texture in and around lesions are from the real validation images (no judge given)"

    def __init__(self, images: Images, masks: Masks) -> None:
        self.masks = masks
        self.real = statistics(images, masks)

    def __call__(self, images: Images) -> dict[str, float]:
        """The mean distance; infinite where lesions are too small or too few to say."""
        drawn = statistics(images, self.masks)
        found = [_distance(self.real[name], drawn[name]) for name in self.real]
        finite = [d for d in found if math.isfinite(d)]
        return {"val_realism": sum(finite) / len(finite) if finite else math.inf}


def _distance(real: Float[Tensor, " n"], drawn: Float[Tensor, " n"]) -> float:
    a, b = real[real.isfinite()], drawn[drawn.isfinite()]
    if min(len(a), len(b)) < 2:
        return math.inf
    return wasserstein(a, b) / max(float(a.double().std()), 1e-3)


def disc(images: Images) -> Masks:
    """A disc in the middle of every image, of a third of the side."""
    n, size = len(images), images.shape[-1]
    grid = torch.linspace(-1, 1, size)
    inside = grid[:, None].square() + grid[None].square() < (1 / 3) ** 2
    return inside.to(torch.uint8)[None, None].expand(n, 1, size, size).contiguous()


class Recovery:
    """The judge's Dice on drawn images, and the distance beside it.

    ceiling: its Dice on the real images of the same masks
    """

    best = "val_recovered_dice"
    mode: Literal["max", "min"] = "max"
    names: tuple[str, ...] = ("val_recovered_dice", "val_recovered_iou", "val_realism")
    words = "the Dice between what the judge finds in the drawn images and their masks"

    def __init__(self, images: Images, masks: Masks, judge: str, device: torch.device) -> None:
        self.masks, self.judge = masks, judge
        self.predictor = Predictor(load_segmenter(judge, device=device), device)
        self.realism = Realism(images, masks)
        self.ceiling = self._overlap(images)["val_recovered_dice"]

    def __call__(self, images: Images) -> dict[str, float]:
        return {**self._overlap(images), **self.realism(images)}

    def _overlap(self, images: Images) -> dict[str, float]:
        found = torch.cat([self._lesion(chunk) for chunk in images.split(16)])
        true = F.interpolate((self.masks > 0).float(), size=found.shape[-2:], mode="nearest-exact")[:, 0] > 0.5
        counts = count(found > self.predictor.model.preprocessing.threshold, true)
        return {"val_recovered_dice": float(counts.dice().mean()), "val_recovered_iou": float(counts.iou().mean())}

    def _lesion(self, images: Images) -> Float[Tensor, "b h w"]:
        size, wanted = self.predictor.size, self.predictor.channels
        seen = in_channels(images.float(), wanted)
        if seen.shape[-1] != size:
            seen = F.interpolate(seen, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
        return lesion_probability(self.predictor(seen.round().clamp(0, 255).to(torch.uint8)))


def in_channels(images: Float[Tensor, "b c h w"], wanted: int) -> Float[Tensor, "b k h w"]:
    """Gray to RGB or back, as readers of pictures do it (ITU-R 601)."""
    if images.shape[1] == wanted:
        return images
    if wanted == 3:
        return images.expand(-1, 3, -1, -1)
    return (images * images.new_tensor([0.299, 0.587, 0.114])[None, :, None, None]).sum(1, keepdim=True)


Score = Realism | Recovery


def as_text(value: float | None, digits: int = 3, unit: str = "") -> str:
    """A number as people read it. Files say None where it is infinite or none, since JSON has no word for either."""
    return "not measurable" if value is None or not math.isfinite(value) else f"{value:.{digits}f} {unit}".rstrip()


def as_pixels(images: Float[Tensor, "b c h w"]) -> UInt8[Tensor, "b c h w"]:
    """−1 … 1 → 0 … 255, on the CPU: the inverse of `latents.as_signed`."""
    return ((images.float().cpu() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
