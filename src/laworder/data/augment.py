"""Batched augmentation on whatever device the batch lies on, with every random number from one explicit generator.

Geometry (flips, rotation, scale, shift) is one affine map per sample and one sampling grid, through which the image is
read bilinearly and the mask by nearest neighbour; what comes from outside the picture is black and background. Colour
(brightness, contrast, gamma, saturation, hue) touches the image alone.

Drawing and applying are apart: `Augment.draw` is eager and needs the generator, `apply` is a pure function of tensors
and compiles as one graph. Each option has its own column of random numbers, so that switching one on does not change
what another draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from laworder.errors import UserError, nearest

_COLUMNS = 11


class Draw(NamedTuple):
    """What was drawn for a batch: affine maps from output to input coordinates, and colour parameters."""

    affine: Float[Tensor, "b 2 3"]
    brightness: Float[Tensor, " b"]
    contrast: Float[Tensor, " b"]
    gamma: Float[Tensor, " b"]
    saturation: Float[Tensor, " b"]
    hue: Float[Tensor, " b"]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How far a training image may be changed. The defaults are flips and rotation, the paper's recipe.

    flip_h, flip_v: probability of a mirror image, left-right and up-down
    rotate: largest rotation either way, in degrees
    scale: largest zoom either way; 0.2 is from 1/1.2 to 1.2
    shift: largest shift either way along each axis, as a fraction of the side
    brightness: largest relative change of brightness; 0.2 is ±20 %
    contrast: largest relative change of contrast about the image's own mean
    gamma: largest change of gamma; 0.2 is from 1/1.2 to 1.2
    saturation: largest relative change of saturation (RGB only)
    hue: largest turn of the hue either way, in degrees (RGB only)
    """

    flip_h: float = 0.5
    flip_v: float = 0.5
    rotate: float = 15.0
    scale: float = 0.0
    shift: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    gamma: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise UserError(f"augment.{name} must lie between 0 and {most:g}, not {value}")

    @property
    def geometric(self) -> bool:
        """Whether anything moves pixels."""
        return any((self.flip_h, self.flip_v, self.rotate, self.scale, self.shift))

    @property
    def photometric(self) -> bool:
        """Whether anything changes colours."""
        return any((self.brightness, self.contrast, self.gamma, self.saturation, self.hue))

    def __call__(
        self, images: Float[Tensor, "b c h w"], masks: Shaped[Tensor, "b 1 h w"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "b c h w"], Shaped[Tensor, "b 1 h w"]]:
        """An augmented batch. Images are in [0, 1] and stay there; masks keep their dtype and values."""
        drawn = self.draw(images.shape[0], aspect=images.shape[-2] / images.shape[-1], generator=generator)
        drawn = Draw(*(t.to(images.device) for t in drawn))
        return apply(images, masks, drawn, geometric=self.geometric, photometric=self.photometric)

    def draw(self, batch: int, *, generator: torch.Generator, aspect: float = 1.0) -> Draw:
        """The random part, on the generator's device. `aspect` is height over width: a turn is a turn in pixels."""
        device = generator.device
        u = torch.rand(_COLUMNS, batch, generator=generator, device=device)
        spread = 2 * u - 1
        # Output → input: mirrored, turned by −θ, shrunk by the zoom, shifted.
        turn = spread[2] * math.radians(self.rotate)
        zoom = torch.exp(-spread[3] * math.log1p(self.scale))
        mirror_x = 1 - 2 * (u[0] < self.flip_h).float()
        mirror_y = 1 - 2 * (u[1] < self.flip_v).float()
        cos, sin = torch.cos(turn) * zoom, torch.sin(turn) * zoom
        rows = (
            torch.stack([mirror_x * cos, mirror_x * -sin * aspect, spread[4] * 2 * self.shift], dim=-1),
            torch.stack([mirror_y * sin / aspect, mirror_y * cos, spread[5] * 2 * self.shift], dim=-1),
        )
        return Draw(
            affine=torch.stack(rows, dim=1),
            brightness=1 + spread[6] * self.brightness,
            contrast=1 + spread[7] * self.contrast,
            gamma=torch.exp(spread[8] * math.log1p(self.gamma)),
            saturation=1 + spread[9] * self.saturation,
            hue=spread[10] * math.radians(self.hue),
        )


_MOST = {
    "flip_h": 1, "flip_v": 1, "rotate": 180, "scale": 4, "shift": 1,
    "brightness": 1, "contrast": 1, "gamma": 4, "saturation": 1, "hue": 180,
}  # fmt: skip

RECIPES = {
    "none": Augment(flip_h=0, flip_v=0, rotate=0),
    "paper": Augment(),
    "strong": Augment(
        rotate=30, scale=0.25, shift=0.1, brightness=0.2, contrast=0.2, gamma=0.25, saturation=0.2, hue=8
    ),
}


def recipe(name: str) -> Augment:
    """A named augmentation: "none", "paper" (flips and rotation) or "strong" (everything, moderately)."""
    if name not in RECIPES:
        raise UserError(f"no augmentation recipe {name!r}{nearest(name, RECIPES)}")
    return RECIPES[name]


def apply(
    images: Float[Tensor, "b c h w"],
    masks: Shaped[Tensor, "b 1 h w"],
    drawn: Draw,
    *,
    geometric: bool = True,
    photometric: bool = True,
) -> tuple[Float[Tensor, "b c h w"], Shaped[Tensor, "b 1 h w"]]:
    """The deterministic part: the batch as `drawn` says. Compiles with `fullgraph=True`."""
    if geometric:
        grid = F.affine_grid(drawn.affine.to(images.dtype), list(images.shape), align_corners=False)
        images = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        moved = F.grid_sample(masks.to(images.dtype), grid, mode="nearest", padding_mode="zeros", align_corners=False)
        masks = moved.to(masks.dtype)
    if photometric:
        images = recolour(images, drawn)
    return images, masks


def recolour(images: Float[Tensor, "b c h w"], drawn: Draw) -> Float[Tensor, "b c h w"]:
    """Hue, saturation, contrast, brightness, then gamma; clipped to [0, 1]."""

    def wide(t: Float[Tensor, " b"]) -> Float[Tensor, "b 1 1 1"]:
        return t.to(images.dtype)[:, None, None, None]

    if images.shape[1] == 3:
        images = torch.einsum("bij,bjhw->bihw", _colour_matrix(drawn).to(images.dtype), images)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (mean + (images - mean) * wide(drawn.contrast)) * wide(drawn.brightness)
    # Away from 0, where the gradient of a power is infinite.
    return images.clamp(1e-6, 1).pow(wide(drawn.gamma))


def _colour_matrix(drawn: Draw) -> Float[Tensor, "b 3 3"]:
    """Saturation and hue as one linear map: in YIQ, scale and turn the IQ plane, and go back to RGB."""
    to_yiq = drawn.hue.new_tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
    cos, sin = torch.cos(drawn.hue) * drawn.saturation, torch.sin(drawn.hue) * drawn.saturation
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=-1).unflatten(-1, (3, 3))
    return torch.linalg.inv_ex(to_yiq).inverse @ turn @ to_yiq
