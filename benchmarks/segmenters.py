"""The paper's runtime table (Table 6) for every registered segmenter, measured on this machine.

    python benchmarks/segmenters.py                      # CUDA where there is one, else the CPU
    python benchmarks/segmenters.py --device cpu --models 'order_*' mkunet_t

Every model sees the same seeded batch in one process: warm-up, then the median over the repeats with its quartiles.
`reference` rows run ORDER's attention as the formula stands (through the N×N matrix), beside the exact form.
Peak MB is weights, input and everything that the forward pass holds at once. Written as JSON with a manifest, and
as Markdown, under benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from common import manifest
from laworder import segmenters
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.segmenters.profile import conv_flops, count_parameters, flops, peak_bytes

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = {"order_01", "order_12"}
"""Models that are also measured with the N×N form (order_23 would need 34 GB for each of its matrices at batch 16)."""
MB = 1e6


def main() -> None:
    args = arguments()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    started = time.perf_counter()
    rows = [row for name in chosen(args.models) for row in variants(name, args, device)]
    result = {
        "manifest": told(args, device) | {"seconds": round(time.perf_counter() - started, 1)},
        "rows": rows,
        "exact_over_reference_peak": ratios(rows),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"segmenters-{device.type}"
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: cuda where there is one)")
    parser.add_argument("--models", nargs="+", default=["*"], help="names or patterns (default: all)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=3.0, help="time to spend repeating each model")
    parser.add_argument("--repeats", type=int, default=50, help="most repeats of each model; the fewest is 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


def chosen(patterns: list[str]) -> list[str]:
    """Registered names that match any of the patterns, smallest model first."""
    names = {name for pattern in patterns for name in segmenters.list_models(pattern)}
    if not names:
        raise UserError(f"--models {' '.join(patterns)} matches no model; known: {', '.join(segmenters.list_models())}")
    return sorted(names, key=lambda name: count_parameters(segmenters.create(name)))


def variants(name: str, args: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """The row of a model, and that of its reference form where it has one."""
    rows = [measured(name, segmenters.create(name), args, device)]
    if name in REFERENCE:
        rows.append(measured(f"{name} (reference)", segmenters.create(name, form="reference"), args, device))
    return rows


def measured(label: str, model: Segmenter, args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    print(f"{label} …", file=sys.stderr, flush=True)
    row: dict[str, Any] = {
        "model": label,
        "params": count_parameters(model),
        "conv_flops": conv_flops(model, args.size),
        "flops": flops(model, args.size),
    }
    torch.manual_seed(args.seed)
    x = torch.randn(args.batch, model.in_channels, args.size, args.size).to(device)
    model = model.to(device).eval()
    try:
        with torch.inference_mode():
            times = timed(model, x, args)
            peak = peak_mb(model, x)
    except torch.OutOfMemoryError as error:
        return row | {"error": str(error).splitlines()[0]}
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return row | {
        "ms_per_image": middle / args.batch,
        "ms_per_image_quartiles": [low / args.batch, high / args.batch],
        "images_per_second": 1e3 * args.batch / middle,
        "peak_mb": peak,
        "repeats": len(times),
    }


def timed(model: Segmenter, x: torch.Tensor, args: argparse.Namespace) -> list[float]:
    """Milliseconds of each repeat, at least three, until `--seconds` or `--repeats` are used up."""
    warm = 10 if x.is_cuda else 1
    for _ in range(warm):
        one_pass(model, x)
    times: list[float] = []
    deadline = time.perf_counter() + args.seconds
    while len(times) < 3 or (len(times) < args.repeats and time.perf_counter() < deadline):
        times.append(one_pass(model, x))
    return times


def one_pass(model: Segmenter, x: torch.Tensor) -> float:
    """Milliseconds of one forward pass, from idle device to idle device."""
    synchronise(x)
    start = time.perf_counter()
    model(x)
    synchronise(x)
    return 1e3 * (time.perf_counter() - start)


def synchronise(x: torch.Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def peak_mb(model: Segmenter, x: torch.Tensor) -> float:
    if x.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(x.device)
        model(x)
        torch.cuda.synchronize(x.device)
        return torch.cuda.max_memory_allocated(x.device) / MB
    held = sum(t.nbytes for t in (x, *model.parameters(), *model.buffers()))
    return (held + peak_bytes(lambda: model(x))) / MB


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Peak memory of the exact form over that of the reference, by model."""
    peaks = {row["model"]: row["peak_mb"] for row in rows if "peak_mb" in row}
    pairs = {name: peaks.get(f"{name} (reference)") for name in peaks}
    return {name: peaks[name] / reference for name, reference in pairs.items() if reference}


def told(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    cuda = device.type == "cuda"
    settings = {
        "dtype": "float32",
        "mode": "eval, inference_mode",
        "tf32_convolutions": torch.backends.cudnn.allow_tf32 if cuda else None,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32 if cuda else None,
    }
    return manifest(args, device=device, seeds=[args.seed], rooms=["order", "segmenters"], settings=settings)


def markdown(result: dict[str, Any]) -> str:
    about = result["manifest"]
    config = about["config"]
    lines = [
        f"# Segmenters, batch {config['batch']} at {config['size']}², {about['device']}",
        "",
        f"`{about['command']}`, {about['date']}, torch {about['versions']['torch']}, {about['cpu']['threads']} CPU "
        "threads, float32. Median over the repeats, quartiles in brackets.",
        "",
        "| model | params | conv FLOPs | FLOPs | ms/img | img/s | peak MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(line(row) for row in result["rows"]),
        "",
    ]
    for name, ratio in result["exact_over_reference_peak"].items():
        lines.append(f"Exact {name} peaks at {100 * ratio:.1f} % of the reference form's memory.  ")
    return "\n".join(lines).rstrip() + "\n"


def line(row: dict[str, Any]) -> str:
    start = f"| {row['model']} | {row['params']:,} | {row['conv_flops'] / 1e9:.4f} G | {row['flops'] / 1e9:.4g} G"
    if "error" in row:
        return f"{start} | {row['error']} | | |"
    low, high = row["ms_per_image_quartiles"]
    return (
        f"{start} | {row['ms_per_image']:.3f} [{low:.3f}, {high:.3f}] | {row['images_per_second']:.1f} "
        f"| {row['peak_mb']:.1f} |"
    )


if __name__ == "__main__":
    main()
