"""U-Net (Ronneberger, Fischer and Brox, 2015) in the batch-normalised, size-keeping form that most people now mean.

Level i works at 1/2ⁱ of the input's side with `widths[i]` channels. A level is twice (3×3 convolution without bias,
batch norm, ReLU); down is a 2×2 max-pool; up is a 2×2 transposed convolution with bias whose output is concatenated
behind the encoder's map of the same level. The head is a 1×1 convolution to logits. At the paper's widths
64, 128, 256, 512, 1024 with 3 channels in and 1 class out this counts 31,037,633 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.segmenters.registry import register

WIDTHS = (64, 128, 256, 512, 1024)
"""Channels of the paper's five levels, from the full resolution down."""


def double_conv(channels: int, out: int) -> nn.Sequential:
    """Twice: 3×3 convolution that keeps the size, batch norm, ReLU."""
    layers: list[nn.Module] = []
    for width in (channels, out):
        conv = nn.Conv2d(width, out, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")  # std √(2/N), the paper's section 3
        layers += [conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(Segmenter):
    """U-Net of any depth and widths; its `stride` is 2 to the number of poolings."""

    def __init__(self, *, in_channels: int = 3, classes: int = 1, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__(in_channels=in_channels, classes=classes)
        if len(widths) < 2 or min(widths) < 1:
            raise UserError(f"widths must name at least two levels of at least 1 channel each, not {list(widths)}")
        self.stride = 2 ** (len(widths) - 1)
        shallow, deep = list(widths[:-1]), list(widths[1:])
        self.stem = double_conv(in_channels, widths[0])
        self.down = nn.ModuleList(double_conv(i, o) for i, o in zip(shallow, deep, strict=True))
        steps = list(zip(reversed(deep), reversed(shallow), strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in steps)
        self.merge = nn.ModuleList(double_conv(2 * o, o) for _, o in steps)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def logits(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        """Logits of an input whose sides are multiples of `stride`."""
        x = self.stem(x)
        skips: list[Tensor] = []
        for down in self.down:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


@register(
    "unet",
    summary="U-Net 64…1024 with batch norm; the paper's 'nnUNet' row",
    paper="Ronneberger, Fischer and Brox, U-Net: Convolutional Networks for Biomedical Image Segmentation, 2015",
    licence="none is used: the form is common property, with public versions under MIT, GPL and other licences",
    differs="batch norm and padded convolutions instead of none (any modern U-Net); it is a plain U-Net, not the "
    "self-configuring nnU-Net that the paper's table names",
)
def unet(*, in_channels: int = 3, classes: int = 1, widths: Sequence[int] = WIDTHS) -> UNet:
    """U-Net with fresh weights: 31,037,633 parameters at its defaults."""
    return UNet(in_channels=in_channels, classes=classes, widths=widths)
