"""Deep supervision: one network, several outputs, and the losses that sum over them.

A deeply supervised segmenter writes `side_logits`, its outputs at whatever size they arise, finest first. `forward`
is the finest one at the input's size; `deep_logits` are all of them at the input's size. PraNet and EGE-UNet train on

    L = Σᵢ λᵢ · ℓ(output i, mask),

PraNet with ℓ = `structure_loss` and every λᵢ = 1 (Fan et al. 2020, section 2.3), EGE-UNet with ℓ = `bce_dice_loss` and
λ = 1, 0.5, 0.4, 0.3, 0.2, 0.1 from the finest to the coarsest (Ruan et al. 2023).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order.base import Segmenter, check_input, pad_to_multiple

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, mask) → scalar."""


class DeeplySupervised(Segmenter):
    """A segmenter with one main and several coarser outputs. Subclasses write `side_logits`."""

    deep_weights: tuple[float, ...] = ()
    """The paper's λ of each output, finest first."""
    align_corners: bool = False
    """How the side outputs are resized to the input's size."""

    @abstractmethod
    def side_logits(self, x: Float[Tensor, "b c h w"]) -> list[Tensor]:
        """Every output at its own size, finest first, of an input whose sides are multiples of `stride`."""

    def logits(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        """The finest output at the size of an input whose sides are multiples of `stride`."""
        return self._at_size_of(x, self.side_logits(x)[0])

    def deep_logits(self, x: Float[Tensor, "b c *size"]) -> list[Tensor]:
        """Every output at the input's size, finest first; the first equals `forward(x)`."""
        check_input(x, self.in_channels, self.spatial_dims)
        height, width = x.shape[2:]
        padded = pad_to_multiple(x, self.stride)
        return [self._at_size_of(padded, side)[..., :height, :width] for side in self.side_logits(padded)]

    def _at_size_of(self, x: Tensor, side: Tensor) -> Tensor:
        return F.interpolate(side, size=x.shape[2:], mode="bilinear", align_corners=self.align_corners)


def structure_loss(logits: Float[Tensor, "..."], mask: Shaped[Tensor, "..."]) -> Float[Tensor, ""]:
    """Weighted BCE plus weighted IoU, which look harder where the mask is locally mixed (Fan et al. 2020).

        w     = 1 + 5·|A₃₁(m) − m|                        A₃₁: mean over 31×31 neighbours, zero beyond the border
        L_BCE = Σ w·bce(z, m) / Σ w
        L_IoU = 1 − (Σ w·p·m + 1) / (Σ w·(p + m − p·m) + 1),   p = sigmoid(z)

    Both are (batch, classes, height, width), the mask 0 or 1 in any dtype. Sums run over one map's pixels; the loss is
    the mean over maps; classes are independent maps (give one-hot masks). The authors' code passes `reduce="none"`,
    which PyTorch reads as "mean", so their BCE is not weighted after all; this is the formula as their paper has it.
    """
    z, m = _checked(logits, mask)
    w = 1 + 5 * (F.avg_pool2d(m, 31, stride=1, padding=15) - m).abs()
    bce = F.binary_cross_entropy_with_logits(z, m, reduction="none")
    weighted_bce = _total(w * bce) / _total(w)
    p = torch.sigmoid(z)
    both, either = _total(w * p * m), _total(w * (p + m - p * m))
    return (weighted_bce + 1 - (both + 1) / (either + 1)).mean()


def bce_dice_loss(logits: Float[Tensor, "..."], mask: Shaped[Tensor, "..."]) -> Float[Tensor, ""]:
    """Mean BCE plus soft Dice per map with smooth 1, averaged over maps: 1 − (2Σpm + 1) / (Σp + Σm + 1)."""
    z, m = _checked(logits, mask)
    p = torch.sigmoid(z)
    dice = (2 * _total(p * m) + 1) / (_total(p) + _total(m) + 1)
    return F.binary_cross_entropy_with_logits(z, m) + (1 - dice).mean()


def deep_supervision_loss(
    outputs: Sequence[Tensor], mask: Tensor, *, loss: Loss = structure_loss, weights: Sequence[float] | None = None
) -> Tensor:
    """Σᵢ λᵢ·loss(outputs[i], mask), with every λᵢ = 1 unless `weights` says otherwise."""
    if not outputs:
        raise UserError("outputs is empty: give the list that deep_logits returns")
    factors = [1.0] * len(outputs) if weights is None else list(weights)
    if len(factors) != len(outputs):
        raise UserError(f"weights names {len(factors)} outputs, but there are {len(outputs)}: give one each")
    terms = [factor * loss(output, mask) for factor, output in zip(factors, outputs, strict=True)]
    return torch.stack(terms).sum()


def _total(x: Tensor) -> Tensor:
    return x.sum(dim=(-2, -1))


def _checked(logits: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Both in at least float32 (sums over an image overflow half precision), or words about why not."""
    if logits.ndim != 4 or logits.shape != mask.shape:
        shapes = f"{tuple(logits.shape)} and {tuple(mask.shape)}"
        raise UserError(f"logits and mask must both be (batch, classes, height, width), not {shapes}")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(dtype), mask.to(dtype)
