"""A segmenter on a set of pairs: one row an image, and what the rows say together."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laworder.data.load import Arrays
from laworder.metrics.overlap import Counts, bootstrap_interval, by_lesion_size, count
from laworder.order.base import Segmenter
from laworder.segmentation.task import normalise


@dataclass(frozen=True)
class Evaluation:
    """Per image, in the order of the set. With several classes, lesion means any class but background."""

    names: list[str]
    counts: Counts
    probability: Float[Tensor, "b h w"]

    def summary(self) -> dict[str, Any]:
        """Means over images, the interval of Dice, and Dice by lesion size."""
        dice = self.counts.dice()
        fraction = self.counts.lesion_fraction()
        lesions = fraction > 0
        result: dict[str, Any] = {
            "images": len(self.names),
            "images_with_lesion": int(lesions.sum()),
            "dice": float(dice.mean()),
            "iou": float(self.counts.iou().mean()),
            "precision": float(self.counts.precision().mean()),
            "recall": float(self.counts.recall().mean()),
            "dice_lesion_only": float(dice[lesions].mean()) if bool(lesions.any()) else float("nan"),
            "dice_by_lesion_size": [vars(b) for b in by_lesion_size(dice, fraction)],
        }
        if len(self.names) > 1:
            result["dice_interval_95"] = list(bootstrap_interval(dice))
        return result

    def write_csv(self, path: Path) -> None:
        """One line an image."""
        columns = (self.counts.dice(), self.counts.iou(), self.counts.precision(), self.counts.recall())
        rows = zip(self.names, self.counts.lesion_fraction().tolist(), *(c.tolist() for c in columns), strict=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["name", "lesion_fraction", "dice", "iou", "precision", "recall"])
            writer.writerows([name, *(f"{value:.6f}" for value in values)] for name, *values in rows)


@torch.no_grad()
def count_overlap(model: Segmenter, images: Tensor, masks: Tensor, *, batch: int) -> Counts:
    """The counts behind Dice of uint8 images that lie where the model does. Only they leave the device."""
    model.eval()
    found: list[Counts] = []
    for chunk, true in zip(images.split(batch), masks.split(batch), strict=True):
        p = lesion_map(model, chunk.float() / 255)
        found.append(count(p > 0.5, true[:, 0] > 0))
    both, predicted = torch.cat([c.both for c in found]), torch.cat([c.predicted for c in found])
    return Counts(both.cpu(), predicted.cpu(), torch.cat([c.true for c in found]).cpu(), found[0].pixels)


def lesion_map(model: Segmenter, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    """P(lesion) of images in [0, 1]: the sigmoid for one class, 1 − P(background) beyond."""
    p = model.probabilities(normalise(images))
    return p[:, 0] if model.classes == 1 else 1 - p[:, 0]


@torch.no_grad()
def lesion_probability(model: Segmenter, images: Tensor, *, batch: int, device: torch.device) -> Tensor:
    """P(lesion) of uint8 images, on the CPU."""
    model.eval()
    maps: list[Tensor] = []
    for chunk in images.split(batch):
        maps.append(lesion_map(model, chunk.to(device).float() / 255).cpu())
    return torch.cat(maps)


def evaluate(model: Segmenter, pairs: Arrays, *, batch: int, device: torch.device) -> Evaluation:
    """Judge a segmenter on a set; the mask is where P(lesion) > 0.5."""
    probability = lesion_probability(model, pairs.images, batch=batch, device=device)
    predicted: Bool[Tensor, "b h w"] = probability > 0.5
    return Evaluation(pairs.names, count(predicted, pairs.masks[:, 0] > 0), probability)
