"""What every segmenter shares: checked input, and any size in and out.

Encoders halve the map several times, so a side must be a multiple of `stride`. Instead of asking that of users
(the published MK-UNet breaks at 250), `Segmenter.forward` repeats the last row and column up to the next multiple
and crops the logits back. Sizes that already fit pass through bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order.hub import HubModel, Preprocessing


class Segmenter(HubModel, nn.Module, ABC):
    """A network image → logits of the same height and width. Subclasses write `logits` for sizes that fit."""

    stride: int = 32
    """Sides of the maps that `logits` accepts are multiples of this."""

    def __init__(self, *, in_channels: int = 3, classes: int = 1, spatial_dims: int = 2) -> None:
        super().__init__()
        if in_channels < 1:
            raise UserError(f"in_channels must be at least 1, not {in_channels}")
        if classes < 1:
            raise UserError(f"classes must be at least 1 (1: sigmoid, more: softmax), not {classes}")
        if spatial_dims not in (2, 3):
            raise UserError(f"spatial_dims must be 2 or 3, not {spatial_dims}")
        self.in_channels, self.classes, self.spatial_dims = in_channels, classes, spatial_dims
        if in_channels != 3:  # ImageNet's statistics are of three colours
            self.preprocessing = Preprocessing(mean=(0.5,) * in_channels, std=(0.5,) * in_channels)

    @abstractmethod
    def logits(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b k *size"]:
        """Logits of an input whose sides are multiples of `stride`."""

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b k *size"]:
        """Logits (no sigmoid or softmax), of the input's own size."""
        check_input(x, self.in_channels, self.spatial_dims)
        return crop(self.logits(pad_to_multiple(x, self.stride)), x.shape[2:])

    def deep_logits(self, x: Float[Tensor, "b c *size"]) -> list[Tensor]:
        """Every map that the model's own deep supervision sees: finest first, all of the input's size.

        The first is `forward(x)`; a model without deep supervision has no other.
        """
        return [self(x)]

    def probabilities(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b k *size"]:
        """Sigmoid of the logits for one class, softmax over the classes beyond."""
        out = self(x)
        return torch.sigmoid(out) if self.classes == 1 else torch.softmax(out, dim=1)


def check_input(x: Tensor, in_channels: int, spatial_dims: int) -> None:
    """Refuse what is not a batch of images of the right number of channels, in words."""
    axes = "batch, channels, height, width" if spatial_dims == 2 else "batch, channels, depth, height, width"
    if x.ndim != spatial_dims + 2:
        raise UserError(f"x must have {spatial_dims + 2} axes ({axes}), not {x.ndim}: its shape is {tuple(x.shape)}")
    if x.shape[1] != in_channels:
        raise UserError(f"x must have {in_channels} channels on axis 1 ({axes}), not {x.shape[1]}")
    if not x.is_floating_point():
        raise UserError(f"x must be floating point (scale images first), not {x.dtype}")


def pad_to_multiple(x: Float[Tensor, "b c *size"], multiple: int) -> Float[Tensor, "b c *padded"]:
    """Repeat the last slice of each spatial axis until its side is a multiple of `multiple`."""
    missing = [-side % multiple for side in x.shape[2:]]
    if not any(missing):
        return x
    pads = [p for m in reversed(missing) for p in (0, m)]
    return F.pad(x, pads, mode="replicate")


def crop(x: Float[Tensor, "b k *padded"], size: Sequence[int]) -> Float[Tensor, "b k *size"]:
    """The first `size` places along each spatial axis: undoes `pad_to_multiple`."""
    for axis, side in enumerate(size, start=2):
        x = x.narrow(axis, 0, side)
    return x
