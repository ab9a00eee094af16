"""The U-shaped skeleton that ORDER and MK-UNet share; what a skip does is theirs to say.

Five encoder MKIRs, each followed by a halving; skips are taken after it. A decoder stage is channel attention · x,
spatial attention · x (one 7×7 convolution shared by all stages), MKIR, doubling, ReLU; then the skip is fused.
The last stage has no skip; a 1×1 head gives logits. Skip 0 is the deepest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.order.blocks import MKIR, ChannelAttention, Enlarge, SpatialAttention, conv, halve, init_normal

MakeSkip = Callable[[int, int], nn.Module]
"""(stage, channels) → a module that fuses (decoder map, encoder map) of that stage into one map."""


class AdditiveSkip(nn.Module):
    """The plain skip, d + e."""

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        return d + e


def check_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """At least two levels of at least one channel each, as a tuple."""
    if len(widths) < 2 or any(width < 1 for width in widths):
        raise UserError(f"widths must hold two or more channel counts of at least 1, not {list(widths)}")
    return tuple(widths)


def check_stages(stages: Sequence[int], levels: int) -> tuple[int, ...]:
    """Skip stages, each at most once, in 0 … levels-2 (0 is the deepest), sorted."""
    allowed = list(range(levels - 1))
    for stage in stages:
        if stage not in allowed:
            raise UserError(f"stages: {stage!r} is no skip stage; allowed are any of {allowed} (0 is the deepest)")
    if len(set(stages)) != len(stages):
        raise UserError(f"stages: {list(stages)} names a stage twice; give each of {allowed} at most once")
    return tuple(sorted(stages))


class MultiKernelUNet(Segmenter):
    """Encoder, decoder and head; `make_skip(stage, channels)` builds each stage's fusion of decoder and encoder."""

    def __init__(
        self,
        *,
        make_skip: MakeSkip,
        in_channels: int = 3,
        classes: int = 1,
        widths: Sequence[int] = (4, 8, 16, 24, 32),
        expansion: int = 2,
        kernels: Sequence[int] = (1, 3, 5),
        spatial_dims: int = 2,
        attention_bias: bool = True,
    ) -> None:
        super().__init__(in_channels=in_channels, classes=classes, spatial_dims=spatial_dims)
        widths, dims = check_widths(widths), spatial_dims
        check_block(expansion, kernels)
        self.stride = 2 ** len(widths)
        down, up = (in_channels, *widths), (*reversed(widths), widths[0])

        def block(i: int, o: int) -> MKIR:
            return MKIR(in_channels=i, out_channels=o, expansion=expansion, kernels=kernels, spatial_dims=dims)

        self.encoder = nn.ModuleList(block(i, o) for i, o in pairwise(down))
        self.decoder = nn.ModuleList(block(i, o) for i, o in pairwise(up))
        # r = 16, …, 16, 8, 4 from the deepest stage to the last, each capped at its own width.
        reductions = ([16] * len(widths) + [8, 4])[-len(widths) :]
        self.channel_attention = nn.ModuleList(
            ChannelAttention(channels=c, hidden=c // min(r, c), bias=attention_bias, spatial_dims=dims)
            for c, r in zip(up[:-1], reductions, strict=True)
        )
        self.spatial_attention = SpatialAttention(spatial_dims=dims)
        self.enlarge = nn.ModuleList(Enlarge() for _ in widths)
        self.skips = nn.ModuleList(make_skip(stage, c) for stage, c in enumerate(up[1:-1]))
        self.head = conv(widths[0], classes, dims=dims, bias=True)
        init_normal(self)

    def logits(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b k *size"]:
        return self.head(self.decode(self.encode(x))[-1])

    def encode(self, x: Float[Tensor, "b c *size"]) -> list[Tensor]:
        """The maps after each halving, shallow to deep; the last is the bottleneck."""
        maps: list[Tensor] = []
        for block in self.encoder:
            x = halve(block(x))
            maps.append(x)
        return maps

    def decode(self, maps: list[Tensor]) -> list[Tensor]:
        """The decoder's maps before each skip is fused, deep to shallow; the last has the input's size."""
        *shallow, x = maps
        seen: list[Tensor] = []
        for stage, block in enumerate(self.decoder):
            x = self.channel_attention[stage](x) * x
            x = self.spatial_attention(x) * x
            x = self.enlarge[stage](block(x))
            seen.append(x)
            if stage < len(self.skips):
                x = self.skips[stage](x, shallow[-1 - stage])
        return seen


def check_block(expansion: int, kernels: Sequence[int]) -> None:
    """Expansion of at least 1; odd kernels, so that a padded convolution keeps the size."""
    if expansion < 1:
        raise UserError(f"expansion must be at least 1, not {expansion}")
    if not kernels or any(k < 1 or k % 2 == 0 for k in kernels):
        raise UserError(f"kernels must be odd numbers of at least 1, not {list(kernels)}")
