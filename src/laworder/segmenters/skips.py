"""ORDER by name, and its controls: the same backbone with squeeze-excitation or CBAM on the skips.

The controls (Table 5 of the paper) answer whether any recalibration of the late skips would do as well as the
bidirectional exchange. Both reweight the encoder's map before it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laworder.errors import UserError, nearest
from laworder.order.backbone import AdditiveSkip, MultiKernelUNet, check_stages, check_widths
from laworder.order.blocks import ChannelAttention, SpatialAttention, conv, global_mean
from laworder.order.model import ORDER
from laworder.segmenters.registry import register

Kind = Literal["se", "cbam"]


class SESkip(nn.Module):
    """d + σ(W₂ ReLU(W₁ GAP(e))) · e: squeeze-excitation (Hu et al., 2018), hidden max(2, C/16), no biases."""

    def __init__(self, *, channels: int, spatial_dims: int = 2) -> None:
        super().__init__()
        hidden = max(2, channels // 16)
        self.squeeze = conv(channels, hidden, dims=spatial_dims)
        self.excite = conv(hidden, channels, dims=spatial_dims)

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        return d + torch.sigmoid(self.excite(torch.relu(self.squeeze(global_mean(e))))) * e


class CBAMSkip(nn.Module):
    """d + CBAM(e): channel attention, then a 7×7 spatial attention (Woo et al., 2018), no biases."""

    def __init__(self, *, channels: int, spatial_dims: int = 2) -> None:
        super().__init__()
        hidden = max(2, channels // 16)
        self.channel = ChannelAttention(channels=channels, hidden=hidden, bias=False, spatial_dims=spatial_dims)
        self.spatial = SpatialAttention(spatial_dims=spatial_dims)

    def forward(self, d: Float[Tensor, "b c *size"], e: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        e = self.channel(e) * e
        return d + self.spatial(e) * e


_SKIPS: dict[str, type[nn.Module]] = {"se": SESkip, "cbam": CBAMSkip}


class SkipControl(MultiKernelUNet):
    """ORDER's backbone with `kind` (se or cbam) on the skips `stages`; 26,467 or 26,663 parameters as it stands."""

    def __init__(
        self,
        *,
        kind: Kind = "se",
        in_channels: int = 3,
        classes: int = 1,
        stages: Sequence[int] = (0, 1),
        widths: Sequence[int] = (4, 8, 16, 24, 32),
        expansion: int = 2,
        kernels: Sequence[int] = (1, 3, 5),
        spatial_dims: int = 2,
    ) -> None:
        if kind not in _SKIPS:
            raise UserError(f"kind must be 'se' or 'cbam', not {kind!r}{nearest(kind, get_args(Kind))}")
        active = check_stages(stages, len(check_widths(widths)))

        def make_skip(stage: int, channels: int) -> nn.Module:
            return _SKIPS[kind](channels=channels, spatial_dims=spatial_dims) if stage in active else AdditiveSkip()

        super().__init__(
            make_skip=make_skip,
            in_channels=in_channels,
            classes=classes,
            widths=widths,
            expansion=expansion,
            kernels=kernels,
            spatial_dims=spatial_dims,
        )
        self.stages = active


_PAPER = "LAW & ORDER: Adaptive Spatial Weighting for Medical Diffusion and Segmentation"
_FILLED = (
    "what the text leaves open is filled in so that the published parameter counts come out: channel and spatial "
    "attention stay in the decoder, and the second 1×1 of channel attention has a bias"
)
_ORDER_VARIANTS = {
    "order_01": ((0, 1), "bidirectional attention on the two deepest skips: the paper's main model"),
    "order_12": ((1, 2), "bidirectional attention on skips 1 and 2"),
    "order_23": ((2, 3), "bidirectional attention on the two shallowest skips"),
    "order_0123": ((0, 1, 2, 3), "bidirectional attention on every skip"),
    "order_backbone": ((), "the backbone alone, additive skips"),
}
_CONTROLS: dict[Kind, tuple[str, str]] = {
    "se": ("squeeze-excitation", "Hu et al., Squeeze-and-Excitation Networks, 2018"),
    "cbam": ("CBAM", "Woo et al., CBAM: Convolutional Block Attention Module, 2018"),
}


def _register_all() -> None:
    """Names give defaults; every setting of the class stays open to `create`."""
    for name, (stages, summary) in _ORDER_VARIANTS.items():
        differs = f"attention without the N×N matrix (same result); {_FILLED}" if stages else _FILLED
        order = partial(ORDER, stages=stages)
        register(name, summary=summary, paper=_PAPER, licence="no public code", differs=differs)(order)
    for kind, (module, source) in _CONTROLS.items():
        summary = f"the backbone with {module} on the two deepest skips (a control)"
        paper, control = f"{_PAPER}; {source}", partial(SkipControl, kind=kind)
        register(f"order_{kind}", summary=summary, paper=paper, licence="no public code", differs=_FILLED)(control)


_register_all()
