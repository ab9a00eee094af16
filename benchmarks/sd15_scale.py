"""Training at the full size of Stable Diffusion 1.5: does the paper's batch of 20 at 384² fit, and how long is a step?

    python benchmarks/sd15_scale.py --out benchmarks/results/sd15_scale.json     # a GPU, about eight minutes
    python benchmarks/sd15_scale.py --tiny                                       # toy sizes, any machine, a minute

The weights are random (tools/random_sd15.py --full: the released widths, 860 million weights in the UNet): what they
draw means nothing, but classes, code path, memory and time are those of the real ones. What is measured is the update
that `laworder synth train` makes (DiffuseTask: draws, forward, loss, backward, clipping, AdamW), with cached latents
and embeddings, on drawn images. Each variant is prepared anew, then timed after a warm-up, with the device synchronised
around each step; peak memory counts weights, gradients, optimiser state and activations.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from common import manifest
from laworder.config import build
from laworder.data.load import load_arrays
from laworder.data.opening import open_source
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.start import starting_backbone
from laworder.diffusion.task import DiffuseTask
from laworder.diffusion.train import prepare
from laworder.runs.distributed import Place

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from random_sd15 import make

VARIANTS: dict[str, dict[str, Any]] = {
    "uniform": {"objective": "uniform"},
    "law": {"objective": "law"},
    "law, gradient checkpointing": {"objective": "law", "network.gradient_checkpointing": True},
    "law, decoder locked": {"objective": "law", "network.unlock_decoder": False},
    "law, LoRA of rank 16": {"objective": "law", "network.lora": 16, "network.unlock_decoder": False},
    "distillation": {"objective": "distillation"},
    "law, compiled": {"objective": "law", "network.compile": True},
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file; a table in Markdown is written beside it")
    parser.add_argument("--tiny", action="store_true", help="toy sizes")
    parser.add_argument(
        "--weights", type=Path, help="where the random weights lie, or are to lie; none: a temporary one"
    )
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--steps", type=int, default=15, help="timed, after a third as many of warm-up")
    parser.add_argument("--minutes", type=float, default=8.0, help="no further variant is begun after these")
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    return parser.parse_args()


def settings(args: argparse.Namespace, weights: Path, more: dict[str, Any]) -> TrainConfig:
    sizes = {"size": 64, "batch": 4} if args.tiny else {"size": 384, "batch": args.batch, "precision": "bf16"}
    given = {"data": "phantom", "phantom.count": 48, "held_out": 0.1, "split_by": "image", "backbone": "sd15",
             "network.weights": str(weights), "prompt": "a polyp", "optimiser.lr": 1e-5, "optimiser.ema": 0.0,
             "watch.validation": 2, "watch.images": 2, "log": "none"}  # fmt: skip
    return build(TrainConfig, {**given, **sizes, **more})


def ready(config: TrainConfig, device: torch.device) -> DiffuseTask:
    """The task that `synth train` would train."""
    source = open_source(config.data, masks=None, size=config.side, phantom=config.phantom)
    pairs = load_arrays(source, config.side, 3, range(40))
    fixed = load_arrays(source, config.side, 3, range(40, 44))
    return prepare(config, starting_backbone(config), pairs, fixed, device, Place()).task


def one_step(task: DiffuseTask, step: int, batch: int) -> float:
    rule = task.optimizers["optimiser"]
    rule.zero_grad(set_to_none=True)
    positions = (torch.arange(batch) + step * batch) % len(task.store.names)
    loss, _ = task.micro_step(positions, step, 0)
    loss.backward()
    clip_grad_norm_(task.learning, 1.0)
    rule.step()
    return float(loss.detach())


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(config: TrainConfig, device: torch.device, steps: int) -> dict[str, Any]:
    """One variant; an update that does not fit is a result, too."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    task = ready(config, device)
    seconds: list[float] = []
    loss = float("nan")
    warm = max(1, steps // 3)
    try:
        for step in range(1, warm + steps + 1):
            wait(device)
            began = time.perf_counter()
            loss = one_step(task, step, config.batch)
            wait(device)
            if step > warm:
                seconds.append(time.perf_counter() - began)
    except torch.OutOfMemoryError:
        return {"fits": False, "batch": config.batch}
    quarter = statistics.quantiles(seconds, n=4)
    learning = sum(p.numel() for p in task.learning)
    return {
        "fits": True,
        "batch": config.batch,
        "size": config.side,
        "precision": config.precision,
        "ms_per_step": 1e3 * statistics.median(seconds),
        "ms_quartiles": [1e3 * quarter[0], 1e3 * quarter[2]],
        "steps": len(seconds),
        "images_per_second": config.batch / statistics.median(seconds),
        "peak_gib": torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None,
        "weights_that_learn": learning,
        "last_loss": loss,
    }


def table(results: dict[str, Any], stamp: dict[str, Any]) -> str:
    lines = [
        f"# Training at the size of Stable Diffusion 1.5, {stamp['device']}",
        "",
        f"`{stamp['command']}`, {stamp['date']}, torch {stamp['versions']['torch']}. Random weights of the released "
        "widths, cached latents. Median over steps, quartiles in brackets.",
        "",
        "| training | batch | size | ms/step | images/s | peak GiB | weights that learn |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in results.items():
        if not found["fits"]:
            lines.append(f"| {name} | {found['batch']} | | does not fit | | | |")
            continue
        low, high = found["ms_quartiles"]
        peak = "" if found["peak_gib"] is None else f"{found['peak_gib']:.1f}"
        lines.append(
            f"| {name} | {found['batch']} | {found['size']}² | {found['ms_per_step']:.0f} [{low:.0f}, {high:.0f}] "
            f"| {found['images_per_second']:.1f} | {peak} | {found['weights_that_learn'] / 1e6:.0f} M |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    args, began = parsed(), time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.tiny:
        args.steps = min(args.steps, 3)
    with tempfile.TemporaryDirectory() as scratch:
        weights = args.weights or Path(scratch) / "sd"
        if not (weights / "model_index.json").is_file():
            make(weights, size="small" if args.tiny else "full")
        results: dict[str, Any] = {}
        stamp = manifest(args, device=device, seeds=[0], rooms=["diffusion", "law"])
        for name in args.only:
            if (time.monotonic() - began) / 60 > args.minutes:
                print(f"{name}: not begun, the time is up")
                continue
            results[name] = measure(settings(args, weights, VARIANTS[name]), device, args.steps)
            print(name, json.dumps(results[name]), flush=True)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            if args.out is not None:  # after every variant: what is measured is kept
                args.out.write_text(json.dumps({"manifest": stamp, "results": results}, indent=1) + "\n")
                args.out.with_suffix(".md").write_text(table(results, stamp))
    print(table(results, stamp))


if __name__ == "__main__":
    main()
