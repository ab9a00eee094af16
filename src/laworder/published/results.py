"""`results.csv` read into rows, and what its tables and measures mean."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from laworder.errors import UserError, nearest


@dataclass(frozen=True)
class Row:
    """One cell of a table. `digits`: behind the point, as printed in the paper."""

    table: str
    method: str
    dataset: str
    metric: str
    mean: float
    std: float | None
    digits: int

    def text(self) -> str:
        """As the paper prints it: 52.32 ± 0.70."""
        mean = f"{self.mean:.{self.digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{self.digits}f}"


@dataclass(frozen=True)
class Metric:
    """A measure: its name in print, its unit, and whether more of it is better (None: neither)."""

    label: str
    unit: str = ""
    higher: bool | None = None


@dataclass(frozen=True)
class Table:
    """A table of the paper: its place there, what it shows, and how its numbers came about, in sentences."""

    number: int
    title: str
    protocol: tuple[str, ...]


METRICS: dict[str, Metric] = {
    "fid": Metric("FID", higher=False),
    "clip_i": Metric("CLIP-I", higher=True),
    "mask_dice": Metric("mask-recovery Dice", higher=True),
    "mask_iou": Metric("mask-recovery IoU", higher=True),
    "dice": Metric("mean Dice", "%", higher=True),
    "iou": Metric("mean IoU", "%", higher=True),
    "params": Metric("parameters"),
    "gflops": Metric("convolution FLOPs", "G", higher=False),
    "ms_per_image": Metric("time per image", "ms", higher=False),
    "images_per_second": Metric("images per second", higher=True),
    "peak_mb": Metric("peak memory", "MB", higher=False),
}

_SEEDS = "mean ± standard deviation over five seeded runs"
_SYNTHESIS = (
    "Stable Diffusion 1.5 with ControlNet at 384×384; DDIM, 50 steps, η = 0, guidance 10; one image per mask",
    "FID by pytorch-fid on images resized to 299×299, by which filter is not stated; CLIP-I to the real set, encoder "
    "and pairing not stated",
)
_NNUNET = (
    "a frozen segmenter trained per dataset, called nnUNet; by its 31.0 M parameters a plain U-Net, not nnU-Net v2"
)
_SEGMENTATION = (
    "256×256, batch 16, 100 epochs, BCE + Dice, AdEMAMix at 1e-4, cosine to 1e-6, flips and rotations",
    "polyps: trained on 1823 of 2026 pairs, tested on Kvasir (100) and CVC-ClinicDB (62), means averaged over the two",
    "BRISC: trained on 4500 of 5000 images, tested on 1000, those without tumour included",
)

TABLES: dict[str, Table] = {
    "law_image_quality": Table(
        1,
        "image quality against the training images",
        (
            "generated from the training masks, compared with the real training images, equal counts: "
            "1450 polyps, 5003 KiTS19",
            *_SYNTHESIS,
            _SEEDS,
        ),
    ),
    "law_image_quality_heldout": Table(
        2,
        "image quality against held-out images",
        (
            "generated from held-out masks, compared with the held-out real images: 162 polyps, 531 KiTS19, 1000 BRISC "
            "before those without a mask are left out",
            *_SYNTHESIS,
            _SEEDS,
        ),
    ),
    "law_mask_recovery": Table(
        3,
        "mask recovery",
        (
            _NNUNET,
            "run on every generated image, against the mask that made it; its score on real images is not stated",
            _SYNTHESIS[0],
            "mean ± standard deviation, of what is not stated",
        ),
    ),
    "downstream": Table(
        4,
        "segmentation with synthetic images added",
        (
            "trained on real images alone, or on them and one generated image per training mask: "
            "1450 polyps, 5003 KiTS19, 3933 BRISC",
            "validated on real images only",
            _SEEDS,
        ),
    ),
    "dose_controls": Table(
        5,
        "segmentation of polyps against the number of synthetic images",
        ("drawn from one pool of 1450 images that LAW generated", "mean ± standard deviation"),
    ),
    "ablation_law": Table(
        6,
        "LAW, part by part",
        (
            "polyps, generated from the training masks, compared with the training images; single runs",
            "from Delta map to Dice regularizer each row adds a part; all trained stably but Delta map (no norm)",
        ),
    ),
    "segmentation_standard": Table(7, "segmenters", (*_SEGMENTATION, _SEEDS)),
    "segmentation_attention": Table(
        8,
        "attention on the skips of ORDER's backbone",
        (
            *_SEGMENTATION[:2],
            _SEEDS,
            "the row ORDER backbone has the scores of the row MK-UNet in the table of segmenters",
        ),
    ),
    "segmentation_runtime": Table(
        9,
        "speed and memory at 256×256",
        ("one GPU, unnamed; batch unstated", "FLOPs count convolutions alone: the attention's products are left out"),
    ),
    "ablation_stages": Table(
        10,
        "which skips have attention",
        (
            "a validation part of the polyp training pool, not the test images of the table of segmenters",
            _SEEDS,
        ),
    ),
}


@lru_cache(maxsize=1)
def _rows() -> tuple[Row, ...]:
    text = resources.files("laworder.published").joinpath("results.csv").read_text(encoding="utf-8")
    return tuple(
        Row(
            table=line["table"],
            method=line["method"],
            dataset=line["dataset"],
            metric=line["metric"],
            mean=float(line["mean"]),
            std=float(line["std"]) if line["std"] else None,
            digits=len(line["mean"].partition(".")[2]),
        )
        for line in csv.DictReader(text.splitlines())
    )


def find(
    *, table: str | None = None, dataset: str | None = None, method: str | None = None, metric: str | None = None
) -> list[Row]:
    """The rows with all of these names, in the paper's order; None takes every one. A name that is nowhere is refused.

    A known name may still have no cell: FID of BRISC against the training images was not computed.
    """
    asked = {"table": table, "dataset": dataset, "method": method, "metric": metric}
    rows: Sequence[Row] = _rows()
    for column, name in asked.items():
        known = list(dict.fromkeys(getattr(row, column) for row in _rows()))
        if name is not None and name not in known:
            raise UserError(f"the paper has no {column} {name!r}{nearest(name, known)}")
    return [row for row in rows if all(name is None or getattr(row, key) == name for key, name in asked.items())]
