"""The page of one autoencoder: how good it is, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from laworder.data.load import Arrays
from laworder.diffusion.score import as_text
from laworder.report import Page, Series, contour, line_chart, picture_uri
from laworder.runs import Run, read_metrics
from laworder.segmentation.report import smoothed

SHOWN = 6
GAIN = 4
"""How much differences are enlarged on the sheet."""


def headline(summary: dict[str, Any]) -> str:
    """The result in a sentence."""
    whole, inside = (as_text(summary[name], 2, "dB") for name in ("psnr", "psnr_lesion"))
    return (
        f"PSNR {whole} over whole images and {inside} inside lesions, on {summary['images']} held-out images, "
        f"with the weights of step {summary['step']} of {summary['steps']}."
    )


def write_report(run: Run, summary: dict[str, Any], pairs: Arrays, made: UInt8[Tensor, "n 3 h w"], title: str) -> None:
    """`report.html` in the run folder."""
    page = Page(
        title=title,
        summary=[
            headline(summary),
            "Images that a diffusion model draws on these latents cannot be sharper than what comes back here.",
        ],
    )
    page.section("What comes back")
    page.sheet(
        [_row(pairs, made, index) for index in range(min(SHOWN, len(made)))],
        names=["image with the lesion's outline", "image", "through the autoencoder", f"difference, {GAIN}×"],
        caption=f"Held-out images, the latents between: {summary['latents']}.",
    )
    page.section("Learning curves")
    lines = read_metrics(run.folder / "metrics.jsonl")
    loss = smoothed([(line["step"], line["reconstruction"]) for line in lines])
    page.figure(
        line_chart(
            [Series("reconstruction", *zip(*loss, strict=True))], x_label="step", y_label="loss", title="Training loss"
        ),
        caption="Training loss: pixels and edges at several sizes.",
    )
    looks = [line for line in lines if "val_psnr" in line]
    series = [Series(label, [line["step"] for line in looks], [line[name] for line in looks])
              for name, label in (("val_psnr", "whole images"), ("val_psnr_lesion", "inside lesions"))]  # fmt: skip
    page.figure(
        line_chart(series, x_label="step", y_label="dB", title="PSNR"),
        caption="On held-out images; the weights with the best PSNR over whole images are kept.",
    )
    page.section("How this was made")
    page.record("autoencoder.json", summary)
    page.record("manifest.json", vars(run.manifest))
    page.write(run.folder / "report.html")


def _row(pairs: Arrays, made: UInt8[Tensor, "n 3 h w"], index: int) -> list[tuple[str, str]]:
    real, back = (x[index].permute(1, 2, 0).contiguous().numpy() for x in (pairs.images, made))
    gap = torch.from_numpy(np.abs(real.astype(np.int16) - back) * GAIN).clamp(0, 255).numpy().astype(np.uint8)
    name = pairs.names[index]
    outlined = contour(real, pairs.masks[index, 0].numpy() > 0)
    return [
        (picture_uri(outlined), f"{name}, outlined"),
        (picture_uri(real), name),
        (picture_uri(back), f"{name}, through the autoencoder"),
        (picture_uri(gap), f"{name}, difference"),
    ]
