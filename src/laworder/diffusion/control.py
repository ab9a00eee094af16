"""ControlNets: begun from a UNet's encoder, and the distillation's teacher, which also sees the image."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laworder.diffusion.library import library

IMAGE_SHARE = 0.25
"""Of the image's features in what the teacher sees."""
_HINT = {"tiny": (1, (8, 16, 32)), "small": (1, (16, 32, 64, 128, 256)), "sd15": (3, (16, 32, 96, 256))}
"""Backbone → channels of the mask, and widths of the network that brings it down to the latents' grid."""


def fresh_control(name: str, unet: nn.Module, factor: int) -> Any:
    """A ControlNet that starts as a copy of the UNet's encoder, behind zero layers (Zhang et al. 2023).

    The network that reads the mask is drawn from torch's global generator.
    """
    channels, widths = _HINT[name]
    halvings = factor.bit_length() - 1
    return library("diffusers").ControlNetModel.from_unet(
        unet, conditioning_channels=channels, conditioning_embedding_out_channels=widths[: halvings + 1]
    )


class MaskAndImage(nn.Module):
    """features(mask) + 0.25 · features(image), each by a network of its own; the image's channels come last."""

    def __init__(self, of_mask: nn.Module, of_image: nn.Module, image_channels: int) -> None:
        super().__init__()
        self.of_mask, self.of_image, self.image_channels = of_mask, of_image, image_channels

    def forward(self, shown: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h2 w2"]:
        mask, image = shown[:, : -self.image_channels], shown[:, -self.image_channels :]
        return self.of_mask(mask) + IMAGE_SHARE * self.of_image(image)


def teacher_of(control: nn.Module, image_channels: int) -> Any:
    """The teacher of Adaptive Distillation: a ControlNet that starts as the student does, and sees the image too.

    Its input is the mask's channels, then the image's in [−1, 1]. The image's network is drawn from torch's global
    generator, like the mask's.
    """
    teacher: Any = copy.deepcopy(control)
    own = teacher.controlnet_cond_embedding
    of_image: Any = copy.deepcopy(own)
    old = of_image.conv_in
    of_image.conv_in = nn.Conv2d(image_channels, old.out_channels, old.kernel_size, padding=old.padding)
    teacher.controlnet_cond_embedding = MaskAndImage(own, of_image, image_channels)
    return teacher


def shown_to_teacher(
    teacher: Any, mask: Float[Tensor, "b 1 h w"], images: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b k h w"]:
    """What `Backbone.denoise` is given as the mask where the teacher stands in for the student."""
    channels = int(teacher.config.conditioning_channels)
    return torch.cat([mask.expand(-1, channels, -1, -1), images.to(mask.dtype)], dim=1)
