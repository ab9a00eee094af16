"""MK-UNet (Rahman and Marculescu, 2025): the published network that ORDER's backbone is cut from.

The same encoder and decoder, plus a grouped attention gate on every skip and a deep-supervision head on each inner
decoder map. The published forward pass computes those heads and throws them away; here they run in `deep_logits`,
where a deep-supervised loss can use them, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order.backbone import MultiKernelUNet, check_widths
from laworder.order.base import check_input, crop, pad_to_multiple
from laworder.order.blocks import batch_norm, conv, init_normal
from laworder.segmenters.registry import register

WIDTHS = {
    "t": (4, 8, 16, 24, 32),
    "s": (8, 16, 32, 48, 80),
    "b": (16, 32, 64, 96, 160),
    "m": (32, 64, 128, 192, 320),
    "l": (64, 128, 256, 384, 512),
}
"""The five published sizes; `b` is the one the publication calls MK-UNet without a suffix."""


class GroupedGateSkip(nn.Module):
    """d + σ(BN ψ ReLU(BN W_g d + BN W_x e)) · e; W_g, W_x are 3×3 C → C/2 in C/2 groups, ψ is 1×1 → 1, with biases."""

    def __init__(self, *, channels: int, spatial_dims: int = 2) -> None:
        super().__init__()
        half, dims = channels // 2, spatial_dims

        def grouped() -> nn.Module:
            return nn.Sequential(
                conv(channels, half, 3, dims=dims, groups=half, bias=True), batch_norm(half, dims=dims)
            )

        self.from_decoder, self.from_encoder = grouped(), grouped()
        self.psi = nn.Sequential(conv(half, 1, dims=dims, bias=True), batch_norm(1, dims=dims), nn.Sigmoid())

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        return d + self.psi(torch.relu(self.from_decoder(d) + self.from_encoder(e))) * e


class MKUNet(MultiKernelUNet):
    """Image → logits; 27,384 parameters at the widths of MK-UNet-T, 31 of them in the deep-supervision heads."""

    def __init__(
        self,
        *,
        in_channels: int = 3,
        classes: int = 1,
        widths: Sequence[int] = WIDTHS["t"],
        expansion: int = 2,
        kernels: Sequence[int] = (1, 3, 5),
        spatial_dims: int = 2,
    ) -> None:
        widths = check_widths(widths)
        if any(width % 2 for width in widths):
            raise UserError(f"widths must be even numbers (the gates halve them), not {list(widths)}")

        def make_skip(stage: int, channels: int) -> nn.Module:  # noqa: ARG001 every stage has the same gate
            return GroupedGateSkip(channels=channels, spatial_dims=spatial_dims)

        super().__init__(
            make_skip=make_skip,
            in_channels=in_channels,
            classes=classes,
            widths=widths,
            expansion=expansion,
            kernels=kernels,
            spatial_dims=spatial_dims,
            attention_bias=False,
        )
        inner = (*reversed(widths[:-1]),)[1:]
        self.side_heads = nn.ModuleList(conv(c, classes, dims=spatial_dims, bias=True) for c in inner)
        init_normal(self.side_heads)

    def deep_logits(self, x: Float[Tensor, "b c *size"]) -> list[Tensor]:
        check_input(x, self.in_channels, self.spatial_dims)
        fitted = pad_to_multiple(x, self.stride)
        maps = self.decode(self.encode(fitted))
        sides = [head(m) for head, m in zip(self.side_heads, maps[1:-1], strict=True)]
        mode = "bilinear" if self.spatial_dims == 2 else "trilinear"
        large = [F.interpolate(s, size=fitted.shape[2:], mode=mode, align_corners=False) for s in reversed(sides)]
        return [crop(logits, x.shape[2:]) for logits in (self.head(maps[-1]), *large)]


def _register_mkunet() -> None:
    for size, widths in WIDTHS.items():
        register(
            f"mkunet_{size}",
            summary=f"MK-UNet with widths {', '.join(map(str, widths))}",
            paper="Rahman and Marculescu, MK-UNet: Multi-kernel Lightweight CNN for Medical Image Segmentation, 2025",
            licence="none stated in the public repository",
            differs="any input size (the published one needs multiples of 32); the deep-supervision heads run only in "
            "deep_logits, not in every forward pass",
        )(partial(MKUNet, widths=widths))


_register_mkunet()
