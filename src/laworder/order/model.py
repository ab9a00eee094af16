"""ORDER: the compact backbone with bidirectional attention on chosen skips."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from laworder.errors import UserError
from laworder.order.attention import BidirectionalAttention, Form
from laworder.order.backbone import AdditiveSkip, MultiKernelUNet, check_stages, check_widths


class ORDER(MultiKernelUNet):
    """Image → logits, 42,265 parameters as it stands (section 3.2 of the paper).

    `stages` names the skips that carry bidirectional attention, 0 being the deepest; the others are added as they
    are. The parameters per stage at `widths` (4, 8, 16, 24, 32): 9,613 · 6,345 · 3,141 · 1,563, on a backbone of
    26,307. Each attends with `heads` heads of `head_width`; `attention_width` sets their sum instead, for a fixed
    total split over any number of heads that divides it.

    The output is logits: sigmoid for one class, softmax over the classes beyond.

    >>> ORDER()(torch.zeros(1, 3, 250, 333)).shape
    torch.Size([1, 1, 250, 333])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        classes: int = 1,
        stages: Sequence[int] = (0, 1),
        widths: Sequence[int] = (4, 8, 16, 24, 32),
        heads: int = 2,
        head_width: int = 32,
        attention_width: int | None = None,
        expansion: int = 2,
        kernels: Sequence[int] = (1, 3, 5),
        spatial_dims: int = 2,
        form: Form = "exact",
    ) -> None:
        active = check_stages(stages, len(check_widths(widths)))
        per_head = width_per_head(heads, head_width, attention_width)

        def make_skip(stage: int, channels: int) -> nn.Module:
            if stage not in active:
                return AdditiveSkip()
            return BidirectionalAttention(
                channels=channels, heads=heads, head_width=per_head, spatial_dims=spatial_dims, form=form
            )

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


def width_per_head(heads: int, head_width: int, attention_width: int | None) -> int:
    """`head_width`, or `attention_width` split evenly over `heads` where that is given."""
    if heads < 1 or head_width < 1:
        raise UserError(f"heads and head_width must be at least 1, not {heads} and {head_width}")
    if attention_width is None:
        return head_width
    if attention_width < 1 or attention_width % heads:
        divisors = [h for h in range(1, attention_width + 1) if attention_width % h == 0]
        raise UserError(f"heads={heads} does not divide attention_width={attention_width}; allowed heads: {divisors}")
    return attention_width // heads
