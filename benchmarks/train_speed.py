"""How fast ORDER trains: the plain loop, one seed and several seeds stacked in one process, side by side in one run.

    python benchmarks/train_speed.py                                      # on a GPU, about 8 minutes
    python benchmarks/train_speed.py --modes alone graphed --minutes 9    # two of the modes only
    python benchmarks/train_speed.py --device cpu --size 32 --pairs 24 --batch 4 --epochs 2 --seeds 0-1 --out /tmp/x

Each mode is the real thing: `seg train` with the `paper` recipe on drawn pairs that lie on the device, its data loading
left out, with augmentation, validation after every epoch, log and checkpoints.

    alone          seed 0 by the plain loop, eager
    alone_compiled seed 0 by the plain loop, compiled
    graphed        seed 0 as the only member of a stack: on a GPU every update is one CUDA graph
    together       all seeds stacked
    *_compiled     the same, compiled before it is captured

Images per second are counted end to end from the first timed epoch to the last (`--warm` epochs, in which kernels are
chosen and code is compiled, come before), from the runs' own timing.jsonl; compile and capture time is given beside.
The loss of every mode is held against that of `alone` (in fp32 they must agree to rounding until rounding has grown; in
bf16 the share of steps within 5 % is given), and the curves are written down as a golden curve with the result.

Modes are run in the given order; one that would begin after `--minutes` is left out and named. Written with a manifest
to benchmarks/results/train_speed-DEVICE.json and .md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from common import RESULTS, manifest
from laworder.config import build
from laworder.presets import read_preset
from laworder.runs import read_metrics
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.together.members import parse_seeds
from laworder.segmentation.together.train import train_together
from laworder.segmentation.train import train

MODES = ("alone", "alone_compiled", "graphed", "graphed_compiled", "together", "together_compiled")


def main() -> None:
    args = arguments()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    began, rows, left_out = time.perf_counter(), [], []
    with tempfile.TemporaryDirectory() as work:
        for mode in args.modes:
            if time.perf_counter() - began > 60 * args.minutes:
                left_out.append(mode)
                continue
            try:
                rows.append(measured(mode, args, device, Path(work)))
            except (RuntimeError, torch.OutOfMemoryError) as error:  # the others are worth having all the same
                left_out.append(f"{mode} ({type(error).__name__}: {str(error).splitlines()[0][:200]})")
                traceback.print_exc()
                continue
            print(json.dumps({k: v for k, v in rows[-1].items() if k != "losses"}), flush=True)
            write(args, device, rows, left_out)
    write(args, device, rows, left_out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", help="cpu, cuda … (default: cuda where there is one)")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--model", default="order_01")
    parser.add_argument("--pairs", type=int, default=2026, help="of which a tenth is validated on")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--warm", type=int, default=1, help="epochs before the clock starts")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: bf16 on a GPU, fp32 elsewhere")
    parser.add_argument("--minutes", type=float, default=6.0, help="no mode begins after these")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def settings(args: argparse.Namespace, device: torch.device, mode: str, out: Path) -> TrainConfig:
    precision = args.precision or ("bf16" if device.type == "cuda" else "fp32")
    return build(TrainConfig, {
        **read_preset("seg train", "paper"), "data": "phantom", "phantom.count": args.pairs, "out": out,
        "model": args.model, "batch": args.batch, "size": args.size, "epochs": args.epochs, "precision": precision,
        "device": str(device), "compile": mode.endswith("_compiled"), "log": "none",
    })  # fmt: skip


def measured(mode: str, args: argparse.Namespace, device: torch.device, work: Path) -> dict[str, Any]:
    """Train, then read the speed from what the run wrote while it went."""
    config = settings(args, device, mode, work / mode)
    kind = mode.removesuffix("_compiled")
    seeds = parse_seeds(args.seeds) if kind == "together" else [0]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    if kind == "alone":
        train(config)
        folders = [config.out]
    else:
        text = ",".join(map(str, seeds))
        train_together(build(TrainConfig, {**flat(config), "seeds": text}))
        folders = [config.out / f"seed-{seed}" for seed in seeds]
    seconds = time.perf_counter() - began
    losses = [line["loss"] for line in read_metrics(folders[0] / "metrics.jsonl")]
    return {
        "mode": mode,
        "members": len(folders),
        **speed(folders, args, len(losses)),
        "seconds_in_all": seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None,
        "losses": losses,
    }


def flat(config: TrainConfig) -> dict[str, Any]:
    from laworder.config import flatten, to_dict

    return flatten(to_dict(config))


def speed(folders: list[Path], args: argparse.Namespace, steps: int) -> dict[str, Any]:
    """From the end of the warm epochs to the end of the last one, over all members: wall clock of the lines."""
    between = steps // args.epochs
    first = args.warm * between
    times = [[line["time"] for line in read_metrics(folder / "timing.jsonl")] for folder in folders]
    seconds = max(t[-1] for t in times) - max(t[first - 1] for t in times)
    epochs = [
        (max(t[end - 1] for t in times) - max(t[end - between - 1] for t in times))
        for end in range(first + between, steps + 1, between)
    ]
    images = (steps - first) * args.batch * len(folders)
    return {
        "images_per_second": images / seconds,
        "images_per_second_each_epoch": [between * args.batch * len(folders) / e for e in epochs],
        "ms_per_update": 1e3 * seconds / (steps - first),
    }


def agreement(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Every mode's seed-0 losses against the first mode's: the largest relative difference, early and overall."""
    golden = rows[0]["losses"]
    found: dict[str, Any] = {}
    for row in rows[1:]:
        apart = [abs(a - b) / abs(a) for a, b in zip(golden, row["losses"], strict=True)]
        found[row["mode"]] = {
            "first_20_steps": max(apart[:20]),
            "all_steps": max(apart),
            "median": statistics.median(apart),
            "share_within_5_percent": sum(a < 0.05 for a in apart) / len(apart),
        }
    return found


def write(args: argparse.Namespace, device: torch.device, rows: list[dict[str, Any]], left_out: list[str]) -> None:
    about = manifest(args, device=device, seeds=parse_seeds(args.seeds), rooms=["segmentation", "order", "runs"])
    result = {
        "manifest": about,
        "rows": [{k: v for k, v in row.items() if k != "losses"} for row in rows],
        "left_out": left_out,
        "against_the_plain_loop": agreement(rows) if rows else {},
        "golden_curve": {"mode": rows[0]["mode"], "losses": rows[0]["losses"]} if rows else {},
    }
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"train_speed-{device.type}"
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(result))


def markdown(result: dict[str, Any]) -> str:
    about, apart = result["manifest"], result["against_the_plain_loop"]
    config = about["config"]
    lines = [
        f"# Training speed, {config['model']}, batch {config['batch']} at {config['size']}², {about['device']}",
        "",
        f"`{about['command']}`, {about['date']}, torch {about['versions']['torch']}. End to end: augmentation, update, "
        "validation after every epoch, log and checkpoints; decoding, compiling and capturing are not counted.",
        "",
        "| mode | members | img/s | ms/update | slowest epoch, img/s | loss apart from the first mode's, median |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        differs = f"{apart[row['mode']]['median']:.1e}" if row["mode"] in apart else "–"
        lines.append(
            f"| {row['mode']} | {row['members']} | {row['images_per_second']:.0f} | {row['ms_per_update']:.2f} "
            f"| {min(row['images_per_second_each_epoch']):.0f} | {differs} |"
        )
    if result["left_out"]:
        lines += ["", f"Left out (for want of time where nothing else is said): {', '.join(result['left_out'])}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
