"""The demo's data, and what LAW would weigh in them, as pictures."""

from __future__ import annotations

import math

import numpy as np
import torch

from laworder.data.load import Arrays
from laworder.diffusion.backbones.tiny import FACTOR
from laworder.law import LAW, RatioPrior
from laworder.report import Page, contour, gray_picture, picture_uri
from laworder.segmentation.report import rgb

W_MAX = 2.0


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
    """The weight maps before training (δ = 0.5 everywhere), for three lesion sizes, on the latents' grid."""
    fraction = (pairs.masks > 0).float().mean(dim=(1, 2, 3))
    order = torch.argsort(fraction)
    picked = [int(order[round(share * (len(order) - 1))]) for share in (0.25, 0.75, 1.0)]
    masks = (pairs.masks[picked] > 0).float()
    side = math.ceil(masks.shape[-1] / FACTOR)
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
            enlarged = np.kron(maps[k, 0].numpy(), np.ones((FACTOR, FACTOR), dtype=np.float32))
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
