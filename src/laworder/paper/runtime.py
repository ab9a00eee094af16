"""The runtime table: what a segmenter costs on this machine, all of them measured in one process."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from laworder.config import option
from laworder.console import say
from laworder.order.base import Segmenter
from laworder.paper.jobs import Job
from laworder.paper.segmentation import size_of
from laworder.paper.setting import Setting
from laworder.paper.spec import Absent, Ask, Column, Known, Row, Source, Table
from laworder.runs import atomic_write, generator
from laworder.runs.manifest import describe_device
from laworder.segmentation.train import pick_device
from laworder.segmenters import create
from laworder.segmenters.profile import peak_bytes

KIND = "profile"
MB = 1e6
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


@dataclass(frozen=True, kw_only=True)
class Config:
    """Time segmenters with random weights, one after the other in one process; what they compute does not matter."""

    out: Path = option(meaning="folder for runtime.json")
    models: tuple[str, ...] = option(tuple(row.key for row in ROWS), "registered names")
    size: int = option(256, "side of the images", unit="pixels", minimum=32)
    batch: int = option(16, "images at once", minimum=1)
    repeats: int = option(20, "passes, after those that warm up", minimum=3)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"time {', '.join(config.models)} at {config.size}×{config.size}, batch {config.batch}"]


def run(config: Config) -> None:
    """Measure and write `runtime.json`."""
    device = pick_device(config.device)
    noise = generator(0, stream="runtime")
    x = torch.randn(config.batch, 3, config.size, config.size, generator=noise).to(device)
    rows = {name: measure(create(name).to(device).eval(), x, config.repeats) for name in config.models}
    config.out.mkdir(parents=True, exist_ok=True)
    found = {"device": describe_device(device), "batch": config.batch, "size": config.size, "models": rows}
    atomic_write(config.out / "runtime.json", json.dumps(found, indent=1) + "\n")
    for name, row in rows.items():
        say(f"{name}: {row['ms_per_image']:.3f} ms an image, {row['peak_mb']:.0f} MB at the peak")


@torch.inference_mode()
def measure(model: Segmenter, x: torch.Tensor, repeats: int) -> dict[str, float]:
    """Median time of a pass and the most memory that it holds, weights and input included."""
    for _ in range(10 if x.is_cuda else 1):
        _timed(model, x)
    middle = statistics.median(_timed(model, x) for _ in range(repeats))
    images = len(x)
    return {
        "ms_per_image": 1e3 * middle / images,
        "images_per_second": images / middle,
        "peak_mb": _peak(model, x) / MB,
    }


def _timed(model: Segmenter, x: torch.Tensor) -> float:
    _wait(x)
    began = time.perf_counter()
    model(x)
    _wait(x)
    return time.perf_counter() - began


def _wait(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _peak(model: Segmenter, x: torch.Tensor) -> float:
    if x.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(x.device)
        _timed(model, x)
        return float(torch.cuda.max_memory_allocated(x.device))
    held = sum(t.nbytes for t in (x, *model.parameters(), *model.buffers()))
    return float(held + peak_bytes(lambda: model(x)))


def _job(setting: Setting) -> Job:
    names = tuple(row.key for row in ROWS if not (setting.drawn and row.key == "unet"))
    settings: dict[str, Any] = {"models": names}
    if setting.drawn:
        settings |= DEMO
    return Job(KIND, f"profile/{'demo' if setting.drawn else 'paper'}", settings, work=float(len(names)))


def _ask(setting: Setting, row: Row, column: Column, seed: int) -> Source:  # noqa: ARG001 (one measurement in all)
    if column.metric == "params":
        return Known(size_of(row.key)["params"])
    if column.metric == "gflops":
        return Known(size_of(row.key)["conv_flops"] / 1e9)
    if setting.drawn and row.key == "unet":
        return Absent("not measured at demo scale")

    def read(content: Any) -> float | None:
        return content["models"].get(row.key, {}).get(column.metric)

    return Ask(_job(setting), "runtime.json", read)


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
    title="Runtime and memory at 256×256",
    label="tab:segmentation_runtime",
    published="segmentation_runtime",
    rows=ROWS,
    columns=(
        Column("params", "Params", "any", "params", digits=0),
        Column("flops", "conv GFLOPs", "any", "gflops", digits=3),
        Column("ms", "ms/img", "any", "ms_per_image", "down", 3),
        Column("rate", "img/s", "any", "images_per_second", "up", 1),
        Column("peak", "Peak MB", "any", "peak_mb", "down", 1),
    ),
    ask=_ask,
    notes=_notes,
    seeds=False,
)
