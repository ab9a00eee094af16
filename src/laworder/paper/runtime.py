"""The runtime table: what a segmenter costs on this machine."""

from __future__ import annotations

from typing import Any

from laworder.paper.jobs import Job
from laworder.paper.profiling import KIND, RESULT
from laworder.paper.segmentation import FLOPS, PARAMS, price
from laworder.paper.setting import Setting
from laworder.paper.spec import Absent, Ask, Column, Row, Source, Table, dig

DEMO = {"size": 64, "batch": 4, "repeats": 5}
ROWS = (
    Row("mkunet_t", "MK-UNet-T", None),
    Row("order_backbone", "ORDER backbone", "MK-UNet"),
    Row("order_01", "ORDER{0,1}", "ORDER{0,1}"),
    Row("order_12", "ORDER{1,2}", "ORDER{1,2}"),
    Row("order_se", "ORDER backbone + SE", "ORDER backbone + SE"),
    Row("order_cbam", "ORDER backbone + CBAM", "ORDER backbone + CBAM"),
    Row("unet", "nnUNet (U-Net, 31 M)", "nnUNet"),
)


def _job(setting: Setting) -> Job:
    names = tuple(row.key for row in ROWS if not (setting.drawn and row.key == "unet"))
    settings: dict[str, Any] = {"models": names}
    if setting.drawn:
        settings |= DEMO
    return Job(KIND, f"profile/{'demo' if setting.drawn else 'paper'}", settings, work=float(len(names)))


def _ask(setting: Setting, row: Row, column: Column, seed: int) -> Source:  # noqa: ARG001 (one measurement in all)
    known = price(row, column)
    if known is not None:
        return known
    if setting.drawn and row.key == "unet":
        return Absent("not measured at demo scale")
    return Ask(_job(setting), RESULT, dig("models", row.key, column.metric))


def _notes(setting: Setting) -> list[str]:
    lines = ["Times and memory belong to one device: only their order compares with the paper's."]
    if setting.drawn:
        lines.append("Measured at 64×64, batch 4; the paper has 256×256, batch 16.")
    lines.append(
        "ORDER's attention runs without the N×N matrix here; the paper's memory shows that its attention built it. "
        "The paper's MK-UNet row has the parameters of ORDER's backbone."
    )
    return lines


RUNTIME = Table(
    key="runtime",
    title="Runtime and memory",
    published="segmentation_runtime",
    rows=ROWS,
    columns=(
        PARAMS,
        FLOPS,
        Column("ms", "ms/img", "any", "ms_per_image", "down", 3),
        Column("rate", "img/s", "any", "images_per_second", "up", 1),
        Column("peak", "Peak MB", "any", "peak_mb", "down", 1),
    ),
    ask=_ask,
    notes=_notes,
    seeds=False,
)
