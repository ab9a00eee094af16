"""The tables about synthetic images: mask recovery, downstream segmentation, dose."""

from __future__ import annotations

from laworder.paper.drawing import ceiling, downstream, recovered
from laworder.paper.jobs import Job
from laworder.paper.setting import DATASETS, STANDS, Setting
from laworder.paper.spec import Absent, Column, Row, Source, Table, across, dig, judged

METHODS = (
    Row("uniform", "ControlNet, uniform loss", "ControlNet"),
    Row("ratio", "ControlNet + ratio prior", "ArSDM"),
    Row("distillation", "Adaptive Distillation", "Adaptive Distillation"),
    Row("law", "LAW", "LAW"),
    Row("law_plus", "law_plus (not in the paper)"),
)
REAL = "real"
DOSES = {250: 8, 500: 16, 1000: 32, 1450: None}
"""Synthetic pairs, the paper's → at demo scale, where the whole pool is smaller; None is all of it."""


def _ask_recovery(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    real = row.key == REAL
    job = ceiling(setting, column.dataset) if real else recovered(setting, row.key, column.dataset, seed)
    return judged(job, dig("model", "mean", column.metric.removeprefix("mask_")))


def _ask_downstream(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    objective = None if row.key == REAL else row.key
    return _percent(downstream(setting, objective, column.dataset, seed, None), column)


def _ask_dose(setting: Setting, row: Row, column: Column, seed: int) -> Source:
    if row.key == REAL:
        return _ask_downstream(setting, row, column, seed)
    dose = int(row.key)
    count = DOSES[dose] if setting.drawn or dose == max(DOSES) else dose
    return _percent(downstream(setting, "law", column.dataset, seed, count), column)


def _percent(job: Job | Absent, column: Column) -> Source:
    return judged(job, dig("model", "mean", column.metric), factor=100)


def general_notes(setting: Setting) -> list[str]:
    """What holds for every table about synthetic images."""
    if setting.drawn:
        return [STANDS, "The tiny pixel-space backbone; ORDER{0,1} as the segmenter."]
    made = {
        "small": "The compact latent backbone at 256×256 from a prior that all objectives share, not Stable Diffusion",
        "paper": "Stable Diffusion 1.5 with ControlNet at 384×384, by the presets `paper-…` of `synth train`",
    }
    return [
        f"{made[setting.scale]}; DDIM, 50 steps; segmenter: the U-Net of 31,037,633 parameters, recipe "
        f"`{setting.recipe}` of `seg train`.",
        "ArSDM is the ratio prior in the same ControlNet: the published ArSDM is a pixel-space model with an L1 loss.",
        "Held out: the paper's test images where the data hold them, else a tenth of the training pool.",
    ]


def _recovery_notes(setting: Setting) -> list[str]:
    return [*general_notes(setting), "The last row is the same judge on real held-out images: its ceiling."]


def _downstream_notes(setting: Setting) -> list[str]:
    return [
        *general_notes(setting),
        "Each seed trains the segmenter on nine tenths of the real pairs and the synthetic ones, keeps the weights "
        "that are best on the last tenth (real), and is judged on the held-out real images. The synthetic pool is that "
        "of seed 0: one image for each training mask, of which smaller doses are parts and the largest is all.",
    ]


def _dose_notes(setting: Setting) -> list[str]:
    if not setting.drawn:
        return _downstream_notes(setting)
    ours = ", ".join(str(count) for count in DOSES.values() if count is not None)
    theirs = ", ".join(str(dose) for dose, count in DOSES.items() if count is not None)
    stand = f"{ours} and all of our synthetic images stand for the paper's {theirs} and {max(DOSES)}."
    return [*_downstream_notes(setting), stand]


_MDICE = Column("dice", "mDice", "", "dice", "up", unit="%")

RECOVERY = Table(
    key="recovery",
    title="Mask recovery",
    published="law_mask_recovery",
    rows=(*METHODS, Row(REAL, "real held-out images", reference=True)),
    columns=across(
        DATASETS, Column("dice", "Dice", "", "mask_dice", "up", 3), Column("iou", "IoU", "", "mask_iou", "up", 3)
    ),
    ask=_ask_recovery,
    notes=_recovery_notes,
)

DOWNSTREAM = Table(
    key="downstream",
    title="Segmentation with synthetic images added",
    published="downstream",
    rows=(
        Row(REAL, "Real only", "Real only"),
        *(Row(row.key, f"Real + {row.label}", row.published and f"Real + {row.published}") for row in METHODS),
    ),
    columns=across(DATASETS, _MDICE),
    ask=_ask_downstream,
    notes=_downstream_notes,
)

DOSE = Table(
    key="dose",
    title="Segmentation of polyps against the number of synthetic images",
    published="dose_controls",
    rows=(
        Row(REAL, "Real only", "Real only"),
        *(Row(str(dose), f"Real + LAW, {dose}", f"Real + LAW, {dose}") for dose in DOSES),
    ),
    columns=across({"polyps": DATASETS["polyps"]}, _MDICE),
    ask=_ask_dose,
    notes=_dose_notes,
)
