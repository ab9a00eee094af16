"""`laworder demo`: the story so far on drawn data, ending in a report. Nothing is fetched, no GPU is needed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laworder.config import build, option, to_dict
from laworder.console import say
from laworder.data.load import Arrays
from laworder.law import LAW, RatioPrior
from laworder.report import Page, contour, gray_picture, picture_uri
from laworder.runs import atomic_write
from laworder.segmentation.report import headline, rgb, size_chart, worst_cases
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.train import Trained, train

MODELS = {"order_01": "ORDER {0,1}", "order_backbone": "backbone without attention"}
W_MAX = 2.0


@dataclass(frozen=True, kw_only=True)
class Config:
    """Draw colonoscopy-like images with small lesions, show what LAW will weigh in them, train ORDER and its backbone
    side by side, and write one report. Killed and started again, it goes on where it was."""

    out: Path = option(Path("demo"), "folder for everything it makes")
    seed: int = option(0, "of the drawn data and of both trainings", minimum=0)
    images: int = option(240, "pairs to draw; one in five is held out", minimum=20)
    size: int = option(96, "side of the images", unit="pixels", minimum=32)
    epochs: int = option(24, "times that each training sees its images", minimum=1)


def plan(config: Config) -> list[str]:
    return [
        f"draw {config.images} colonoscopy-like pairs of {config.size}×{config.size} pixels (seed {config.seed})",
        "compute the loss weights that LAW starts from, for a small and a large lesion",
        *(f"train {name} for {config.epochs} epochs in {config.out / model}" for model, name in MODELS.items()),
        f"write {config.out / 'report.html'}",
    ]


def run(config: Config) -> None:
    began = time.monotonic()
    # Such small maps gain little from a second thread, and a shared machine makes two wait for each other.
    torch.set_num_threads(1)
    config.out.mkdir(parents=True, exist_ok=True)
    trained: dict[str, Trained] = {}
    for number, (model, name) in enumerate(MODELS.items(), start=1):
        say(f"[{number}/{len(MODELS)}] training {name} on {config.images} drawn pairs …")
        trained[name] = train(_settings(config, model))
        say(f"      held-out Dice {trained[name].validation.summary()['dice']:.3f}")
    target = config.out / "report.html"
    atomic_write(target, report(config, trained).html())
    say(f"done in {time.monotonic() - began:.0f} s; the report: {target.resolve()}")


def _settings(config: Config, model: str) -> TrainConfig:
    return build(
        TrainConfig,
        {
            "data": "phantom",
            "out": config.out / model,
            "model": model,
            "size": config.size,
            "seed": config.seed,
            "epochs": config.epochs,
            "held_out": 0.2,
            "validate_every": max(1, config.epochs // 10),
            "batch": 8,
            "optimiser.name": "adamw",
            "optimiser.lr": 2e-2,
            "optimiser.warmup": min(40, config.epochs),
            "phantom.count": config.images,
            "phantom.seed": config.seed,
        },
    )


def report(config: Config, trained: dict[str, Trained]) -> Page:
    """One page: words first, then data, weights, segmenters."""
    summaries = {name: result.validation.summary() for name, result in trained.items()}
    pairs = next(iter(trained.values())).pairs
    page = Page(
        title="laworder on drawn data",
        summary=[
            "Everything here was made on this machine from drawn (phantom) images; the numbers show that the parts "
            "work, not how well they do on patients.",
            *(f"{name}: {headline(summary)}" for name, summary in summaries.items()),
            bigger_is_easier({name: _dice_and_area(result) for name, result in trained.items()}),
        ],
    )
    page.section("The data")
    page.text(
        f"{config.images} pictures of {config.size}×{config.size} pixels, in the manner of a colonoscopy: lesions of "
        "0.2 to 15 % of the picture, some with something lesion-like beside them that is none."
    )
    data_sheet(page, pairs)
    page.section("Where LAW would spend the denoising loss")
    law_weights(page, pairs)
    page.section("Segmenters, held-out images")
    page.table(
        ["model", "Dice", "IoU", "precision", "recall", "parameters"],
        [_row(name, trained[name], summaries[name]) for name in trained],
        caption="Means over the held-out images; the best weights by Dice on the same images (a demo has no test set).",
    )
    size_chart(page, summaries)
    page.section("The worst cases of ORDER")
    worst_cases(page, next(iter(trained.values())).validation, pairs)
    page.section("How this was made")
    page.record("settings", to_dict(config))
    return page


def _dice_and_area(result: Trained) -> tuple[Tensor, Tensor]:
    counts = result.validation.counts
    return counts.dice(), counts.lesion_fraction()


def _row(name: str, result: Trained, summary: dict[str, Any]) -> list[str | int]:
    scores = [f"{summary[key]:.3f}" for key in ("dice", "iou", "precision", "recall")]
    return [name, *scores, f"{sum(p.numel() for p in result.model.parameters()):,}"]


def bigger_is_easier(results: dict[str, tuple[Tensor, Tensor]]) -> str:
    """Dice on the smaller half of the lesions beside that on the larger half, in words; model → (Dice, lesion area)."""
    parts = []
    for name, (dice, area) in results.items():
        order = torch.argsort(area)
        small, large = (float(dice[half].mean()) for half in order.tensor_split(2))
        verdict = "easier" if large > small else "not easier"
        parts.append(f"for {name}, large lesions are {verdict} than small ones (Dice {large:.2f} against {small:.2f})")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}: the larger half of the held-out lesions against the smaller half."


def data_sheet(page: Page, pairs: Arrays, columns: int = 6) -> None:
    """A few held-out images over the same images with outlined lesions."""
    fraction = (pairs.masks > 0).float().mean(dim=(1, 2, 3))
    order = torch.argsort(fraction)
    picked = [int(order[round(k * (len(order) - 1) / (columns - 1))]) for k in range(columns)]
    images = [rgb(pairs.images[i]) for i in picked]
    masks = [(pairs.masks[i, 0] > 0).numpy() for i in picked]
    sizes = [f"{100 * float(fraction[i]):.1f} %" for i in picked]
    page.sheet(
        [
            [(picture_uri(image), f"drawn image, lesion of {size}") for image, size in zip(images, sizes, strict=True)],
            [
                (picture_uri(contour(image, mask)), f"the same with its lesion outlined, {size}")
                for image, mask, size in zip(images, masks, sizes, strict=True)
            ],
        ],
        caption=f"Held-out images from the smallest lesion to the largest ({', '.join(sizes)} of the image).",
    )


def law_weights(page: Page, pairs: Arrays) -> None:
    """The weight maps before training (δ = 0.5 everywhere), for three lesion sizes, at an eighth of the resolution."""
    fraction = (pairs.masks > 0).float().mean(dim=(1, 2, 3))
    order = torch.argsort(fraction)
    picked = [int(order[round(share * (len(order) - 1))]) for share in (0.25, 0.75, 1.0)]
    masks = (pairs.masks[picked] > 0).float()
    side = math.ceil(masks.shape[-1] / 8)
    noise = torch.zeros(len(picked), 4, side, side)
    law = LAW(channels=4)
    with torch.no_grad():
        weights = {
            "ratio prior": RatioPrior()(noise, noise, masks).weight_map,
            "LAW at its start": law(noise, noise, masks).weight_map,
        }
    rows, table = [], []
    for k in range(len(picked)):
        size = f"{100 * float(fraction[picked[k]]):.1f} %"
        row = [(picture_uri(gray_picture(masks[k, 0].numpy(), low=0, high=1)), f"mask of a lesion of {size}")]
        for name, maps in weights.items():
            enlarged = np.kron(maps[k, 0].numpy(), np.ones((8, 8), dtype=np.float32))
            row.append((picture_uri(gray_picture(enlarged, low=0, high=W_MAX)), f"{name}: weights, lesion of {size}"))
        rows.append(row)
        final = weights["LAW at its start"][k, 0]
        table.append([size, f"{float(final.max()):.2f}", f"{float(final.min()):.3f}", f"{float(final.mean()):.2f}"])
    page.sheet(rows, names=["mask", *weights], caption="Weights from 0 (black) to 2 (white), at latent resolution.")
    page.table(
        ["lesion area", "largest weight", "smallest weight", "mean weight"],
        table,
        caption="LAW before training. Small lesions sit at the upper clamp of 2, so the mean weight falls below 1: "
        "what LAW learns then moves the background alone.",
    )
