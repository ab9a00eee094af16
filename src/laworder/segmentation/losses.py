"""The loss of the paper's section 3.2: binary cross-entropy plus Dice, and its form for several classes.

With `weights` w, one for each class and background first, the cross-entropy is the mean over pixels of w(y)·ce, y being
the pixel's true class. It is not divided by the weights of the batch: a share of a batch then counts as much as any
other, and several processes that average their losses compute the whole batch's.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F


def soft_dice_loss(
    probability: Float[Tensor, "b k *size"], target: Float[Tensor, "b k *size"], *, smooth: float = 1.0
) -> Float[Tensor, ""]:
    """1 − (2Σpy + s) / (Σp + Σy + s), per sample and class, then the mean. Sums in float32."""
    p, y = probability.float().flatten(2), target.float().flatten(2)
    overlap = (2 * (p * y).sum(-1) + smooth) / (p.sum(-1) + y.sum(-1) + smooth)
    return 1 - overlap.mean()


def bce_dice(
    logits: Float[Tensor, "b 1 *size"],
    mask: UInt8[Tensor, "b 1 *size"],
    *,
    weights: Float[Tensor, "2"] | None = None,
) -> dict[str, Tensor]:
    """L_BCE + L_Dice for one class; `weights` are of background and lesion."""
    target = (mask > 0).to(logits.dtype)
    each = None if weights is None else weights[(mask > 0).long()]
    bce = F.binary_cross_entropy_with_logits(logits.float(), target.float(), weight=each)
    return {"bce": bce, "dice": soft_dice_loss(torch.sigmoid(logits), target)}


def ce_dice(
    logits: Float[Tensor, "b k *size"],
    mask: UInt8[Tensor, "b 1 *size"],
    *,
    weights: Float[Tensor, " k"] | None = None,
) -> dict[str, Tensor]:
    """Cross-entropy plus Dice over the foreground classes, for K ≥ 2 classes including background."""
    index = mask[:, 0].long()
    one_hot = F.one_hot(index, logits.shape[1]).movedim(-1, 1).to(logits.dtype)
    probability = torch.softmax(logits.float(), dim=1)
    ce = F.cross_entropy(logits.float(), index, weight=weights, reduction="none").mean()
    return {"ce": ce, "dice": soft_dice_loss(probability[:, 1:], one_hot[:, 1:])}


def segmentation_loss(logits: Tensor, mask: Tensor, *, weights: Tensor | None = None) -> dict[str, Tensor]:
    """The parts whose sum is the loss: `bce_dice` for one class, `ce_dice` beyond."""
    return (bce_dice if logits.shape[1] == 1 else ce_dice)(logits, mask, weights=weights)
