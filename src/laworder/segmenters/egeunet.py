"""EGE-UNet (Ruan et al. 2023): a U-Net of six stages whose width comes in groups of four.

*Group multi-axis Hadamard product attention* (GHPA) cuts the channels into four groups. Three are
multiplied by small learnt maps, one over (height, width), one over (channel, height), one over (channel, width), each
resized to the feature and refined by a depthwise-separable convolution; the fourth passes one such convolution itself.
*The group aggregation bridge* (GAB) replaces the plain skip: it joins the deeper skip, the encoder's map
and the decoder's own coarse mask, group by group, with dilated depthwise convolutions (1, 2, 5, 7). Those coarse masks
are the deep-supervision outputs, so they get a gradient from the bridges even where only the final output is trained.

Widths are free multiples of four: [8, 16, 24, 32, 48, 64] are the authors' default with 53,374 parameters;
[16, 32, 64, 128, 192, 256], with 514,702, are what the comparison tables of LAW & ORDER report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.segmenters.losses import DeeplySupervised
from laworder.segmenters.registry import register

WIDTHS = (8, 16, 24, 32, 48, 64)
"""The authors' default."""
PAPER_WIDTHS = (16, 32, 64, 128, 192, 256)
"""What the paper's EGE-UNet row counts."""
GROUPS = 4
LEARNT_SIDE = 8
"""Side of GHPA's learnt maps before they are resized to the feature."""
DILATIONS = (1, 2, 5, 7)
"""One for each group of the bridge."""


class ChannelNorm(nn.Module):
    """Layer norm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        normed = F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, self.bias, eps=1e-6)
        return normed.movedim(-1, 1)


class PlaneAttention(nn.Module):
    """x ⊙ J(P): a learnt map P over (height, width), refined by J = 3×3 depthwise, GELU, 1×1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.plane = nn.Parameter(torch.ones(1, channels, LEARNT_SIDE, LEARNT_SIDE))
        self.refine = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.GELU(), nn.Conv2d(channels, channels, 1)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        plane = F.interpolate(self.plane, size=x.shape[2:], mode="bilinear", align_corners=True)
        return x * self.refine(plane)


class LineAttention(nn.Module):
    """x ⊙ J(P): a learnt map P over (channel, height) for axis 2 or (channel, width) for axis 3, J in one dimension."""

    def __init__(self, channels: int, *, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.line = nn.Parameter(torch.ones(1, channels, LEARNT_SIDE))
        self.refine = nn.Sequential(
            nn.Conv1d(channels, channels, 3, padding=1, groups=channels), nn.GELU(), nn.Conv1d(channels, channels, 1)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        line = F.interpolate(self.line, size=x.shape[self.axis], mode="linear", align_corners=True)
        return x * self.refine(line).unsqueeze(5 - self.axis)  # constant along the other spatial axis


class HadamardAttention(nn.Module):
    """GHPA: norm, four groups each on its own axes, norm, depthwise-separable convolution to `out` channels."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        group = channels // GROUPS
        self.before, self.after = ChannelNorm(channels), ChannelNorm(channels)
        self.branches = nn.ModuleList(
            [
                PlaneAttention(group),
                LineAttention(group, axis=2),
                LineAttention(group, axis=3),
                nn.Sequential(
                    nn.Conv2d(group, group, 1), nn.GELU(), nn.Conv2d(group, group, 3, padding=1, groups=group)
                ),
            ]
        )
        self.mix = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.GELU(), nn.Conv2d(channels, out, 1)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o h w"]:
        groups = self.before(x).chunk(GROUPS, dim=1)
        parts = [branch(group) for branch, group in zip(self.branches, groups, strict=True)]
        return self.mix(self.after(torch.cat(parts, dim=1)))


class AggregationBridge(nn.Module):
    """GAB: a quarter of the deeper skip, a quarter of this level's map and the coarse mask, per group and dilation."""

    def __init__(self, deep: int, width: int, masks: int) -> None:
        super().__init__()
        group = 2 * (width // GROUPS) + masks
        self.project = nn.Conv2d(deep, width, 1)
        self.groups = nn.ModuleList(
            nn.Sequential(ChannelNorm(group), nn.Conv2d(group, group, 3, padding=d, dilation=d, groups=group))
            for d in DILATIONS
        )
        self.merge = nn.Sequential(ChannelNorm(GROUPS * group), nn.Conv2d(GROUPS * group, width, 1))

    def forward(
        self, deep: Float[Tensor, "b d p q"], skip: Float[Tensor, "b c h w"], mask: Float[Tensor, "b k h w"]
    ) -> Float[Tensor, "b c h w"]:
        deep = F.interpolate(self.project(deep), size=skip.shape[2:], mode="bilinear", align_corners=True)
        pairs = zip(deep.chunk(GROUPS, dim=1), skip.chunk(GROUPS, dim=1), strict=True)
        joined = [torch.cat([d, s, mask], dim=1) for d, s in pairs]
        parts = [group(part) for group, part in zip(self.groups, joined, strict=True)]
        return self.merge(torch.cat(parts, dim=1))


class EGEUNet(DeeplySupervised):
    """Six outputs: the final one and five coarse masks, finest first."""

    deep_weights = (1.0, 0.5, 0.4, 0.3, 0.2, 0.1)
    align_corners = True
    stride = 32

    def __init__(self, *, in_channels: int = 3, classes: int = 1, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__(in_channels=in_channels, classes=classes)
        if len(widths) != 6 or any(width < GROUPS or width % GROUPS for width in widths):
            raise UserError(f"widths must be six positive multiples of {GROUPS}, not {list(widths)}")
        steps = list(zip([in_channels, *widths[:-1]], widths, strict=True))
        self.encoder = nn.ModuleList(_stage(i, o, plain=n < 3) for n, (i, o) in enumerate(steps))
        self.encoder_norms = nn.ModuleList(nn.GroupNorm(GROUPS, width) for width in widths[:-1])
        back = [(deep, width) for width, deep in reversed(steps[1:])]
        self.decoder = nn.ModuleList(_stage(i, o, plain=n > 2) for n, (i, o) in enumerate(back))
        self.decoder_norms = nn.ModuleList(nn.GroupNorm(GROUPS, o) for _, o in back)
        self.mask_heads = nn.ModuleList(nn.Conv2d(o, classes, 1) for _, o in back)
        self.bridges = nn.ModuleList(AggregationBridge(i, o, classes) for i, o in back)
        self.head = nn.Conv2d(widths[0], classes, 1)
        self.apply(_initialise)

    def side_logits(self, x: Float[Tensor, "b c h w"]) -> list[Tensor]:
        """The final output at half the input's side, then the coarse masks at 1/2, 1/4, 1/8, 1/16 and 1/32."""
        skips: list[Tensor] = []
        for stage, norm in zip(self.encoder, self.encoder_norms, strict=False):  # the last stage has no norm
            x = F.gelu(F.max_pool2d(norm(stage(x)), 2))
            skips.append(x)
        bridged = x = F.gelu(self.encoder[-1](x))
        sides: list[Tensor] = []
        for stage, norm, head, bridge in zip(
            self.decoder, self.decoder_norms, self.mask_heads, self.bridges, strict=True
        ):
            skip = skips.pop()
            x = norm(stage(x))
            x = F.gelu(F.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=True))
            sides.append(head(x))
            bridged = bridge(bridged, skip, sides[-1])
            x = x + bridged
        return [self.head(x), *reversed(sides)]


def _stage(channels: int, out: int, *, plain: bool) -> nn.Module:
    return nn.Conv2d(channels, out, 3, padding=1) if plain else HadamardAttention(channels, out)


def _initialise(module: nn.Module) -> None:
    """He's normal initialisation by fan-out, as the authors have it: grouped in two dimensions, not so in one."""
    if isinstance(module, nn.Conv2d):
        fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        assert module.bias is not None
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv1d):
        nn.init.normal_(module.weight, std=math.sqrt(2 / (module.kernel_size[0] * module.out_channels)))


_PAPER = "Ruan et al., EGE-UNet: an Efficient Group Enhanced UNet for Skin Lesion Segmentation, 2023"
_LICENCE = "none stated in the authors' repository (JCruan519/EGE-UNet) that we could find"
_DIFFERS = "logits instead of probabilities; any number of classes (a coarse mask then has as many channels)"


@register("egeunet", summary="EGE-UNet at its authors' widths", paper=_PAPER, licence=_LICENCE, differs=_DIFFERS)
def egeunet(*, in_channels: int = 3, classes: int = 1, widths: Sequence[int] = WIDTHS) -> EGEUNet:
    """EGE-UNet with fresh weights: 53,374 parameters at its defaults."""
    return EGEUNet(in_channels=in_channels, classes=classes, widths=widths)


@register(
    "egeunet_paper",
    summary="EGE-UNet at the widths of the LAW & ORDER tables",
    paper=_PAPER,
    licence=_LICENCE,
    differs=f"the paper's EGE-UNet (0.51 M) is not its authors' default (0.05 M), which is `egeunet`; {_DIFFERS}",
)
def egeunet_paper(*, in_channels: int = 3, classes: int = 1, widths: Sequence[int] = PAPER_WIDTHS) -> EGEUNet:
    """EGE-UNet about ten times as large as its authors': 514,702 parameters at its defaults."""
    return EGEUNet(in_channels=in_channels, classes=classes, widths=widths)
