r"""Overlap of a predicted and a true mask, per image.

Dice = 2|ŷ ∩ y| / (|ŷ| + |y|) and IoU = |ŷ ∩ y| / |ŷ ∪ y| on binary masks, averaged over images. Both masks empty
count as 1, exactly one empty as 0. Three conventions circulate under one name; they give different numbers:

- `per_image` (ours): threshold, one Dice an image, mean over images.
- `pooled`: threshold, sum intersections and areas over all pixels of all images, one Dice.
- `curve`: stretch each probability map to [0, 1], one Dice at each of 256 thresholds, mean over thresholds and images.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from laworder.errors import UserError, nearest


@dataclass(frozen=True)
class Counts:
    """Pixels per image: in both masks, in the prediction, in the truth; and how many an image has."""

    both: Float[Tensor, " b"]
    predicted: Float[Tensor, " b"]
    true: Float[Tensor, " b"]
    pixels: int

    def dice(self) -> Float[Tensor, " b"]:
        return _ratio(2 * self.both, self.predicted + self.true)

    def iou(self) -> Float[Tensor, " b"]:
        return _ratio(self.both, self.predicted + self.true - self.both)

    def precision(self) -> Float[Tensor, " b"]:
        """Share of predicted pixels that are lesion; 1 where nothing was predicted and nothing was there."""
        return _one_sided(self.both, self.predicted, self.true)

    def recall(self) -> Float[Tensor, " b"]:
        """Share of lesion pixels that were found; 1 where nothing was there and nothing was predicted."""
        return _one_sided(self.both, self.true, self.predicted)

    def lesion_fraction(self) -> Float[Tensor, " b"]:
        return self.true / self.pixels


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole.clamp(min=1), torch.ones_like(part))


def _one_sided(both: Tensor, own: Tensor, other: Tensor) -> Tensor:
    lone = torch.where(other > 0, torch.zeros_like(both), torch.ones_like(both))
    return torch.where(own > 0, both / own.clamp(min=1), lone)


def count(predicted: Bool[Tensor, " b *size"], true: Bool[Tensor, " b *size"]) -> Counts:
    """Counts of binary masks, exact (float64) for images of any size."""
    if predicted.shape != true.shape:
        raise UserError(f"prediction {tuple(predicted.shape)} and truth {tuple(true.shape)} differ in shape")
    if predicted.dtype != torch.bool or true.dtype != torch.bool:
        raise UserError("masks must be boolean: threshold them first (`probability > 0.5`, `mask > 0`)")
    p, t = predicted.flatten(1), true.flatten(1)

    def total(mask: Tensor) -> Tensor:
        return mask.sum(1).double()

    return Counts(total(p & t), total(p), total(t), p.shape[1])


def per_image_dice(probability: Float[Tensor, " b *size"], true: Bool[Tensor, " b *size"]) -> float:
    """Mean over images of Dice at probability 0.5."""
    return float(count(probability > 0.5, true).dice().mean())


def pooled_dice(probability: Float[Tensor, " b *size"], true: Bool[Tensor, " b *size"]) -> float:
    """Dice of all pixels of all images taken as one image."""
    counts = count((probability > 0.5).flatten()[None], true.flatten()[None])
    return float(counts.dice())


def curve_dice(probability: Float[Tensor, " b *size"], true: Bool[Tensor, " b *size"]) -> float:
    """Mean over images and over 256 thresholds, after stretching each probability map to [0, 1]."""
    return float(curve_dice_per_image(probability, true).mean())


def curve_dice_per_image(probability: Float[Tensor, " b *size"], true: Bool[Tensor, " b *size"]) -> Float[Tensor, " b"]:
    """Mean Dice over the thresholds k/255, k = 0…255, of each image.

    Pixels are sorted into the 257 gaps between thresholds once; sums from above then give the counts at every one.
    """
    thresholds = torch.arange(256, dtype=torch.float64, device=probability.device) / 255
    scores: list[Tensor] = []
    for p, y in zip(probability.flatten(1), true.flatten(1), strict=True):
        flat = p.double()
        low, high = flat.min(), flat.max()
        stretched = (flat - low) / (high - low) if bool(high > low) else flat
        passed = torch.bucketize(stretched, thresholds, right=True)
        predicted = _at_least(passed)
        both = _at_least(passed[y])
        scores.append(_ratio(2 * both, predicted + y.sum().double()).mean())
    return torch.stack(scores)


def _at_least(passed: Shaped[Tensor, " n"]) -> Float[Tensor, "256"]:
    """How many pixels pass threshold k, from how many thresholds each pixel passes."""
    return torch.bincount(passed, minlength=257).flip(0).cumsum(0).flip(0)[1:].double()


CONVENTIONS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "per_image": per_image_dice,
    "pooled": pooled_dice,
    "curve": curve_dice,
}


def dice(
    probability: Float[Tensor, " b *size"], true: Bool[Tensor, " b *size"], *, convention: str = "per_image"
) -> float:
    """Mean Dice under a named convention."""
    if convention not in CONVENTIONS:
        raise UserError(f"unknown Dice convention {convention!r}{nearest(convention, CONVENTIONS)}")
    return CONVENTIONS[convention](probability, true)


SIZE_EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
"""Edges of the lesion-size bins, as shares of the image."""


@dataclass(frozen=True)
class Bin:
    """A score over the images whose lesion covers (low, high] of them."""

    low: float
    high: float
    images: int
    mean: float


def by_lesion_size(
    score: Shaped[Tensor, " b"], fraction: Shaped[Tensor, " b"], *, edges: tuple[float, ...] = SIZE_EDGES
) -> list[Bin]:
    """Mean score per bin of lesion size; bins without images and images without lesion are left out."""
    bins: list[Bin] = []
    for low, high in itertools.pairwise(edges):
        inside = (fraction > low) & (fraction <= high)
        if bool(inside.any()):
            bins.append(Bin(low, high, int(inside.sum()), float(score[inside].mean())))
    return bins


def bootstrap_interval(
    score: Shaped[Tensor, " b"], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean score over images."""
    if score.numel() < 2:
        raise UserError(f"a bootstrap interval needs at least 2 images, not {score.numel()}")
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(score.numel(), (resamples, score.numel()), generator=generator)
    means = score.cpu().double()[picks].mean(1)
    tail = (1 - level) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64))
    return float(low), float(high)
