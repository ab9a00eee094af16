"""PraNet (Fan et al. 2020): guess the lesion coarsely, then look again at everything but the guess.

Encoder features f₃, f₄, f₅ at 1/8, 1/16 and 1/32 go through receptive-field blocks into a parallel partial decoder,
whose global map S_g is the first guess. Then, from the deepest feature up, reverse attention weighs the feature by what
the guess so far leaves out and adds what it finds there (section 2.2 of the PraNet paper):

    Sᵢ = RAᵢ(fᵢ ⊙ (1 − σ(S↕))) + S↕,     S↕ = Sᵢ₊₁ resized to fᵢ,     i = 5, 4, 3,     S₆ = S_g.

All four maps are trained (`structure_loss`, each with weight 1); S₃ is the answer.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.segmenters.losses import DeeplySupervised
from laworder.segmenters.registry import register
from laworder.segmenters.res2net import Res2Net50


def conv_bn(channels: int, out: int, kernel: int | tuple[int, int], *, dilation: int = 1) -> nn.Sequential:
    """Convolution that keeps the size, then batch norm; no bias and, as the authors have it, no activation."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (height // 2 * dilation, width // 2 * dilation)
    conv = nn.Conv2d(channels, out, (height, width), padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out))


class ReceptiveField(nn.Module):
    """RFB: a 1×1 branch and three of 1×1, 1×k, k×1 and 3×3 dilated by k, for k = 3, 5, 7, joined, plus a shortcut."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList([conv_bn(channels, out, 1)])
        for k in (3, 5, 7):
            wide, tall = conv_bn(out, out, (1, k)), conv_bn(out, out, (k, 1))
            self.branches.append(nn.Sequential(conv_bn(channels, out, 1), wide, tall, conv_bn(out, out, 3, dilation=k)))
        self.join = conv_bn(4 * out, out, 3)
        self.shortcut = conv_bn(channels, out, 1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o h w"]:
        joined = self.join(torch.cat([branch(x) for branch in self.branches], dim=1))
        return F.relu(joined + self.shortcut(x))


class PartialDecoder(nn.Module):
    """Deeper maps gate shallower ones by multiplication, then all are joined from the deepest up."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.gate_middle = conv_bn(width, width, 3)
        self.gate_fine_deep, self.gate_fine_middle = conv_bn(width, width, 3), conv_bn(width, width, 3)
        self.raise_deep, self.join_middle = conv_bn(width, width, 3), conv_bn(2 * width, 2 * width, 3)
        self.raise_middle, self.join_fine = conv_bn(2 * width, 2 * width, 3), conv_bn(3 * width, 3 * width, 3)
        self.refine = conv_bn(3 * width, 3 * width, 3)
        self.head = nn.Conv2d(3 * width, classes, 1)

    def forward(
        self, fine: Float[Tensor, "b c h w"], middle: Float[Tensor, "b c p q"], deep: Float[Tensor, "b c r s"]
    ) -> Float[Tensor, "b k h w"]:
        deep_up = _corners(deep, middle)
        gated_fine = self.gate_fine_deep(_corners(deep_up, fine)) * self.gate_fine_middle(_corners(middle, fine)) * fine
        gated_middle = self.gate_middle(deep_up) * middle
        joined = self.join_middle(torch.cat([gated_middle, self.raise_deep(deep_up)], dim=1))
        joined = self.join_fine(torch.cat([gated_fine, self.raise_middle(_corners(joined, fine))], dim=1))
        return self.head(self.refine(joined))


class ReverseAttention(nn.Module):
    """RAᵢ: 1×1 to `width`, `depth` times (k×k, ReLU), and a last convolution to one map per class."""

    def __init__(self, channels: int, width: int, classes: int, *, depth: int, kernel: int, last: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(channels, width, 1)]
        for _ in range(depth):
            layers += [conv_bn(width, width, kernel), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers, conv_bn(width, classes, last))

    def forward(self, feature: Float[Tensor, "b c h w"], guess: Float[Tensor, "b k p q"]) -> Float[Tensor, "b k h w"]:
        guess = F.interpolate(guess, size=feature.shape[2:], mode="bilinear", align_corners=False)
        return self.layers(feature * background(guess)) + guess


class PraNet(DeeplySupervised):
    """Four outputs: the three reverse-attention stages from fine to coarse, then the partial decoder's guess."""

    deep_weights = (1.0, 1.0, 1.0, 1.0)
    stride = 32

    def __init__(
        self,
        *,
        in_channels: int = 3,
        classes: int = 1,
        width: int = 32,
        backbone_weights: str | Path | None = None,
    ) -> None:
        super().__init__(in_channels=in_channels, classes=classes)
        if width < 1:
            raise UserError(f"width must be at least 1, not {width}")
        if backbone_weights is not None and in_channels != 3:
            raise UserError(f"backbone_weights are for in_channels=3, not {in_channels}: repeat or drop image channels")
        self.backbone = Res2Net50(in_channels=in_channels)
        if backbone_weights is not None:
            self.backbone.load(backbone_weights)
        self.fields = nn.ModuleList(ReceptiveField(channels, width) for channels in (512, 1024, 2048))
        self.decoder = PartialDecoder(width, classes)
        self.reverse = nn.ModuleList(
            [
                ReverseAttention(2048, 256, classes, depth=3, kernel=5, last=1),
                ReverseAttention(1024, 64, classes, depth=2, kernel=3, last=3),
                ReverseAttention(512, 64, classes, depth=2, kernel=3, last=3),
            ]
        )

    def side_logits(self, x: Float[Tensor, "b c h w"]) -> list[Tensor]:
        """S₃, S₄, S₅ at 1/8, 1/16, 1/32 of the input's side, and the first guess S_g at 1/8."""
        features = self.backbone(x)
        sides = [self.decoder(*(field(f) for field, f in zip(self.fields, features, strict=True)))]
        for attend, feature in zip(self.reverse, reversed(features), strict=True):
            sides.insert(0, attend(feature, sides[0]))
        return sides


def background(logits: Float[Tensor, "b k h w"]) -> Float[Tensor, "b 1 h w"]:
    """What the guess leaves out: 1 − σ for one class, the probability of class 0 beyond."""
    return torch.sigmoid(-logits) if logits.shape[1] == 1 else torch.softmax(logits, dim=1)[:, :1]


def _corners(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=True)


@register(
    "pranet",
    summary="PraNet on Res2Net-50 v1b, random or ImageNet weights",
    paper="Fan et al., PraNet: Parallel Reverse Attention Network for Polyp Segmentation, 2020; "
    "Gao et al., Res2Net: A New Multi-scale Backbone Architecture, 2019",
    licence="PraNet's code: research and education only, commercial use by permission; Res2Net's: none found",
    differs="starts from random weights unless backbone_weights is given (the authors' starts from ImageNet's); no "
    "unused classifier (2,049,000 parameters); beyond one class, reverse attention is the probability of class 0; the "
    "PraNet of the LAW & ORDER tables (24.2 M, 11.3 G) is not its authors' PraNet, which this is",
)
def pranet(
    *, in_channels: int = 3, classes: int = 1, width: int = 32, backbone_weights: str | Path | None = None
) -> PraNet:
    """PraNet with fresh heads: 30,498,319 parameters at its defaults. `backbone_weights`: a file or a hub id."""
    return PraNet(in_channels=in_channels, classes=classes, width=width, backbone_weights=backbone_weights)
