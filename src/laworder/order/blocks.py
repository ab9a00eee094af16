"""The blocks that ORDER shares with MK-UNet, in two and three dimensions.

`MKIR` is the multi-kernel inverted residual block of the paper's section 3.2 (its first equation),

    MKIR(x) = x + Proj( Σ_{k∈K} DWConv_k( Expand(x) ) ),   K = {1, 3, 5},

here with what the text leaves out (batch norm and ReLU6 after each convolution, a channel shuffle before Proj).
No convolution of the block has a bias. With i → o channels and expansion 2 it holds
2i² + 86i + 2io + 2o parameters, plus i·o for the shortcut's 1×1 where i ≠ o.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02


def conv(
    in_channels: int, out_channels: int, kernel: int = 1, *, dims: int = 2, groups: int = 1, bias: bool = False
) -> nn.Module:
    """A convolution that keeps the map's size; k² or k³ taps."""
    kind = nn.Conv2d if dims == 2 else nn.Conv3d
    return kind(in_channels, out_channels, kernel, padding=kernel // 2, groups=groups, bias=bias)


def batch_norm(channels: int, *, dims: int = 2) -> nn.Module:
    """Batch norm over a map of two or three axes."""
    return nn.BatchNorm2d(channels) if dims == 2 else nn.BatchNorm3d(channels)


def halve(x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *half"]:
    """Max-pool with windows of 2 along every spatial axis."""
    return F.max_pool2d(x, 2) if x.ndim == 4 else F.max_pool3d(x, 2)


def double(x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *twice"]:
    """Twice the size, bilinear (trilinear in 3-D), corners not aligned."""
    return F.interpolate(x, scale_factor=2.0, mode="bilinear" if x.ndim == 4 else "trilinear", align_corners=False)


class Enlarge(nn.Module):
    """The end of a decoder stage: twice the size, then ReLU."""

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *twice"]:
        return torch.relu(double(x))


def global_mean(x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *ones"]:
    """GAP: the mean over the spatial axes, kept as axes of length 1."""
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


def global_max(x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *ones"]:
    """The maximum over the spatial axes, kept as axes of length 1; ties share the gradient."""
    return x.amax(dim=tuple(range(2, x.ndim)), keepdim=True)


def channel_shuffle(x: Float[Tensor, "b c *size"], groups: int) -> Float[Tensor, "b c *size"]:
    """Interleave `groups` runs of channels: channel g·(c/G) + j moves to j·G + g."""
    return torch.unflatten(x, 1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def init_normal(module: nn.Module) -> None:
    """Every convolution from N(0, 0.02²), every bias zero (section 1 of the facts behind the counts)."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Conv3d):
            nn.init.normal_(part.weight, std=INIT_STD)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


class MKIR(nn.Module):
    """Multi-kernel inverted residual block, i → o channels at the same size."""

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        expansion: int = 2,
        kernels: Sequence[int] = (1, 3, 5),
        spatial_dims: int = 2,
    ) -> None:
        super().__init__()
        wide, dims = expansion * in_channels, spatial_dims
        self.expand = nn.Sequential(conv(in_channels, wide, dims=dims), batch_norm(wide, dims=dims), nn.ReLU6())
        self.depthwise = nn.ModuleList(
            nn.Sequential(conv(wide, wide, k, dims=dims, groups=wide), batch_norm(wide, dims=dims), nn.ReLU6())
            for k in kernels
        )
        self.groups = math.gcd(wide, out_channels)
        self.project = nn.Sequential(conv(wide, out_channels, dims=dims), batch_norm(out_channels, dims=dims))
        same = in_channels == out_channels
        self.shortcut = nn.Identity() if same else conv(in_channels, out_channels, dims=dims)

    def forward(self, x: Float[Tensor, "b i *size"]) -> Float[Tensor, "b o *size"]:
        wide = self.expand(x)
        mixed = self.depthwise[0](wide)
        for branch in self.depthwise[1:]:
            mixed = mixed + branch(wide)
        return self.shortcut(x) + self.project(channel_shuffle(mixed, self.groups))


class ChannelAttention(nn.Module):
    """One weight per channel from the pooled map: σ(MLP(avg x) + MLP(max x)), the 1×1 MLP C → C/r → C shared.

    `bias` puts one on the second 1×1 only: with it the ORDER backbone counts the paper's 26,307 parameters,
    without it the 27,384 of the published MK-UNet-T.
    """

    def __init__(self, *, channels: int, hidden: int, bias: bool = True, spatial_dims: int = 2) -> None:
        super().__init__()
        self.squeeze = conv(channels, hidden, dims=spatial_dims)
        self.excite = conv(hidden, channels, dims=spatial_dims, bias=bias)

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *ones"]:
        return torch.sigmoid(self._mlp(global_mean(x)) + self._mlp(global_max(x)))

    def _mlp(self, pooled: Tensor) -> Tensor:
        return self.excite(torch.relu(self.squeeze(pooled)))


class SpatialAttention(nn.Module):
    """One weight per place: σ(Conv₇ [mean over channels ; max over channels]), without bias."""

    def __init__(self, *, kernel: int = 7, spatial_dims: int = 2) -> None:
        super().__init__()
        self.conv = conv(2, 1, kernel, dims=spatial_dims)

    def forward(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b 1 *size"]:
        return torch.sigmoid(self.conv(torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), dim=1)))
