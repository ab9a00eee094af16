"""A segmenter as a function: uint8 images in, class probabilities out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from laworder.data.load import Arrays
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.runs.memory import keep_freed_memory

FLIPS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))
"""Test-time augmentation: as it is, mirrored left-right, up-down, both."""


@dataclass(frozen=True)
class Predictor:
    """Normalises as the model was trained, runs it, and averages over mirror images where `tta` asks for it."""

    model: Segmenter
    device: torch.device
    tta: bool = False

    def __post_init__(self) -> None:
        if self.model.spatial_dims != 2:
            raise UserError("predicting takes a 2-D segmenter (volumes go slice by slice); this one has 3 dimensions")
        if self.model.in_channels not in (1, 3):
            raise UserError(f"predicting reads gray or RGB; this model takes {self.model.in_channels} channels")
        keep_freed_memory()
        self.model.to(self.device).eval()

    @property
    def size(self) -> int:
        """Side of the images that the model was trained on."""
        return self.model.preprocessing.size

    @property
    def channels(self) -> int:
        return self.model.in_channels

    @torch.inference_mode()
    def __call__(self, images: UInt8[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        """P(lesion) for a model of one class, else P of every class, background first; on the CPU."""
        x = self.model.preprocessing.normalise(images.to(self.device).float() / 255)
        flips = FLIPS if self.tta else FLIPS[:1]
        maps = [self.model.probabilities(x.flip(f) if f else x) for f in flips]
        back = [p.flip(f) if f else p for p, f in zip(maps, flips, strict=True)]
        return (back[0] if len(back) == 1 else torch.stack(back).mean(0)).float().cpu()

    def lesion(self, pairs: Arrays, *, batch: int) -> Float[Tensor, "n h w"]:
        """P(lesion) of a whole set."""
        return torch.cat([lesion_probability(self(chunk)) for chunk in pairs.images.split(batch)])


def lesion_probability(probability: Float[Tensor, "b k h w"]) -> Float[Tensor, "b h w"]:
    """P(any class but background)."""
    return probability[:, 0] if probability.shape[1] == 1 else 1 - probability[:, 0]


def classes_of(probability: Float[Tensor, "b k h w"], threshold: float) -> UInt8[Tensor, "b h w"]:
    """Class per pixel: lesion above the threshold for one class, else the likeliest."""
    if probability.shape[1] == 1:
        above: Bool[Tensor, "b h w"] = probability[:, 0] > threshold
        return above.to(torch.uint8)
    return probability.argmax(1).to(torch.uint8)
