"""What pages about segmentation share: a result in words, Dice against size, the worst cases as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from laworder.data.load import Arrays
from laworder.report import Page, bar_chart, contour, gray_picture, picture_uri
from laworder.report.pictures import PREDICTION
from laworder.segmentation.evaluate import Evaluation

WORST = 10
POINTS = 200


def headline(summary: dict[str, Any]) -> str:
    """The result in one sentence."""
    text = f"Mean Dice {summary['dice']:.3f} on {summary['images']} held-out images"
    if "dice_interval_95" in summary:
        low, high = summary["dice_interval_95"]
        text += f" (95 % interval over images {low:.3f} to {high:.3f})"
    return f"{text}; IoU {summary['iou']:.3f}, precision {summary['precision']:.3f}, recall {summary['recall']:.3f}."


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means over equal windows, so that a long run stays a readable line."""
    window = max(1, len(points) // POINTS)
    chunks = [points[i : i + window] for i in range(0, len(points), window)]
    return [(chunk[-1][0], sum(y for _, y in chunk) / len(chunk)) for chunk in chunks]


def size_chart(page: Page, summaries: dict[str, dict[str, Any]]) -> None:
    """Mean Dice per bin of lesion size, one bar a run."""
    bins = sorted({(b["low"], b["high"]) for s in summaries.values() for b in s["dice_by_lesion_size"]})
    if not bins:
        page.text("No held-out image has a lesion.")
        return
    found = {name: {(b["low"], b["high"]): b for b in s["dice_by_lesion_size"]} for name, s in summaries.items()}
    series = [(name, [rows[b]["mean"] if b in rows else float("nan") for b in bins]) for name, rows in found.items()]
    labels = [f"{100 * low:g}–{100 * high:g} %" for low, high in bins]
    page.figure(
        bar_chart(
            labels, series, x_label="lesion area, share of the image", y_label="Dice", title="Dice by lesion size"
        ),
        caption="Mean Dice of the held-out images by the size of their lesion.",
    )
    first = next(iter(found.values()))
    rows = [
        [label, first[b]["images"] if b in first else 0, *(_mean_of(rows.get(b)) for rows in found.values())]
        for label, b in zip(labels, bins, strict=True)
    ]
    page.table(["lesion area", "images", *found], rows, caption="The same numbers as a table.")


def _mean_of(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{found['mean']:.3f}"


def worst_cases(page: Page, validation: Evaluation, pairs: Arrays) -> None:
    """Image with the true outline, probability map, image with the predicted outline."""
    dice = validation.counts.dice()
    order = torch.argsort(dice)[:WORST].tolist()
    rows = []
    for index in order:
        image = rgb(pairs.images[index])
        truth = (pairs.masks[index, 0] > 0).numpy()
        p = validation.probability[index].numpy()
        name = f"{pairs.names[index]}, Dice {float(dice[index]):.2f}"
        rows.append(
            [
                (picture_uri(contour(image, truth)), f"{name}: image with the true outline"),
                (picture_uri(gray_picture(p, low=0, high=1)), f"{name}: predicted probability"),
                (picture_uri(contour(image, p > 0.5, colour=PREDICTION)), f"{name}: image with the predicted outline"),
            ]
        )
    listed = "; ".join(f"{pairs.names[i]} {float(dice[i]):.2f}" for i in order)
    page.sheet(
        rows,
        names=["true outline", "probability", "predicted outline"],
        caption=f"Held-out images with the lowest Dice, worst first: {listed}.",
    )


def rgb(image: torch.Tensor) -> np.ndarray:
    """A uint8 image, C×H×W, as H×W×3."""
    array = image.permute(1, 2, 0).numpy()
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else np.ascontiguousarray(array)
