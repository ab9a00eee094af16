"""`laworder seg bench`: which backend runs this model fastest here, and how far each is from PyTorch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from laworder.config import option, to_dict
from laworder.console import say
from laworder.order.base import Segmenter
from laworder.runs import Manifest, atomic_write
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.bench.backends import backends, exported
from laworder.segmentation.bench.timing import Timing, measure
from laworder.segmentation.export.agreement import pictures
from laworder.segmentation.export.command import pytorch_model
from laworder.segmentation.export.trace import LEAST
from laworder.segmenters import create, list_models


@dataclass(frozen=True, kw_only=True)
class Config:
    """Time a segmenter on this CPU in PyTorch, ONNX Runtime and OpenVINO, side by side on the same images. Each backend
    takes uint8 images and gives masks; the table says in which precision it computed and how far it is from PyTorch."""

    model: str = option(
        meaning="run folder, folder of save_pretrained, shipped model, Hub id, or a registered name (fresh weights)",
        positional=True,
    )
    out: Path = option(Path("bench.json"), "file for the numbers")
    threads: int | None = option(None, "CPU threads of each backend; none: one a core", minimum=1)
    batch: int = option(1, "images at a time", minimum=1)
    size: int | None = option(None, "side of the images; none: the training size", unit="pixels", minimum=LEAST)
    seconds: float = option(4.0, "time spent on each backend", unit="s", above=0)
    compile: bool = option(False, "time torch.compile too, which needs a C++ compiler and takes a minute")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [
        f"export {config.model} to a temporary folder in every format",
        f"run each backend in turns for {config.seconds:g} s, batch {config.batch}",
        f"print a table, and write the numbers to {config.out}",
    ]


def run(config: Config) -> int:
    """Measure, print, write."""
    model = fresh(config.model) if config.model in list_models() else pytorch_model(config.model)
    threads = config.threads or os.cpu_count() or 1
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = timings(model, config, threads)
        device = describe_device("cpu")
    finally:
        torch.set_num_threads(before)
    side = config.size or model.preprocessing.size
    say(table(found, f"{config.model}: batch {config.batch}, {side} × {side}, {threads} threads"))
    manifest = Manifest(
        kind="seg bench",
        command=command_line(),
        config=jsonable(to_dict(config)),
        seeds={},
        data={},
        device=device,
        outcome="done",
    )
    record = {"format": 1, "side": side, "backends": [asdict(t) for t in found], "manifest": asdict(manifest)}
    config.out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(config.out, json.dumps(record, indent=1) + "\n")
    say(f"numbers: {config.out}")
    return 0


def timings(model: Segmenter, config: Config, threads: int) -> list[Timing]:
    """Every backend on the same drawn images."""
    side = config.size or model.preprocessing.size
    image = pictures(config.batch, side, side, model.in_channels)
    with tempfile.TemporaryDirectory() as folder:
        shape = (config.batch, side, side)
        files = exported(model, Path(folder))
        candidates = backends(model, files, threads=threads, shape=shape, compiled=config.compile)
        return measure(candidates, image, seconds=config.seconds)


@torch.no_grad()
def fresh(name: str) -> Segmenter:
    """A registered model whose batch norms hold the statistics of drawn images, so that values are of ordinary size."""
    torch.manual_seed(0)
    model = create(name).train()
    norms = [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # a cumulative average
    x = torch.from_numpy(pictures(8, 128, 128, model.in_channels)).permute(0, 3, 1, 2).float() / 255
    model(model.preprocessing.normalise(x))
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum
    return model.eval()


def table(found: Sequence[Timing], title: str) -> str:
    """Markdown, the fastest in bold."""
    best = min(found, key=lambda t: t.median_ms)
    lines = [
        title,
        "",
        "| backend | computes in | ms a batch | quartiles | fastest | images/s | peak MB | difference | same mask |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for t in found:
        name = f"**{t.name}**" if t is best else t.name
        low, high = t.quartiles_ms
        peak = "–" if t.peak_mb is None else f"{t.peak_mb:.0f}"
        lines.append(
            f"| {name} | {t.precision} | {t.median_ms:.2f} | {low:.2f} to {high:.2f} | {t.fastest_ms:.2f} | "
            f"{t.images_per_second:.0f} | {peak} | {t.largest_difference:.1e} | {100 * t.mask_agreement:.3f} % |"
        )
    return "\n".join(lines)
