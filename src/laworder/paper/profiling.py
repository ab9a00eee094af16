"""What segmenters cost on this machine: all of them timed in one process, with random weights."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from laworder.config import option
from laworder.console import say
from laworder.order.base import Segmenter
from laworder.runs import atomic_write, generator
from laworder.runs.manifest import describe_device
from laworder.segmentation.train import pick_device
from laworder.segmenters import create
from laworder.segmenters.profile import peak_bytes

KIND = "profile"
RESULT = "runtime.json"
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Config:
    """Time segmenters with random weights, one after the other in one process; what they compute does not matter."""

    out: Path = option(meaning="folder for runtime.json")
    models: tuple[str, ...] = option(meaning="registered names")
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
    atomic_write(config.out / RESULT, json.dumps(found, indent=1) + "\n")
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
