"""What it is worth to keep freed memory (`laworder.runs.memory`): training and predicting on a CPU, with and without.

    python benchmarks/cpu_memory.py

Each measurement is a process of its own; with and without alternate. An update is forward, backward and AdamW on a
batch of random images; the numbers that it computes are the same. Random weights: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from common import RESULTS, manifest
from laworder import create
from laworder.runs.memory import keep_freed_memory


def main() -> None:
    args = arguments()
    if args.child:
        print(json.dumps(child(args)))
        return
    load = os.getloadavg()[0]
    rows = [
        {"model": model, "keep": keep, **in_a_process(args, model, keep=keep)}
        for model in args.models
        for _ in range(args.rounds)
        for keep in (False, True)
    ]
    settings = {"load_average_at_start": load}
    about = manifest(
        args, device=torch.device("cpu"), seeds=[0], rooms=["runs", "order", "segmenters"], settings=settings
    )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cpu_memory.json").write_text(json.dumps({"manifest": about, "rows": rows}, indent=1) + "\n")
    (args.out / "cpu_memory.md").write_text(markdown(rows, about))
    print(markdown(rows, about))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["order_01", "order_backbone", "mkunet_t"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def in_a_process(args: argparse.Namespace, model: str, *, keep: bool) -> dict[str, Any]:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("batch", "size", "updates")]
    words = [sys.executable, __file__, "--child", "--models", model, *sizes, *(["--keep"] if keep else [])]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    print(model, "kept" if keep else "handed back", found, flush=True)
    return found


def child(args: argparse.Namespace) -> dict[str, Any]:
    if args.keep:
        keep_freed_memory()
    torch.manual_seed(0)
    model = create(args.models[0]).train()
    rule = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(args.batch, 3, args.size, args.size)
    y = (torch.rand(args.batch, 1, args.size, args.size) > 0.9).float()

    def update() -> float:
        loss = binary_cross_entropy_with_logits(model(x), y)
        rule.zero_grad()
        loss.backward()
        rule.step()
        return float(loss)

    @torch.inference_mode()
    def predict() -> None:
        model(x)

    losses, trained, system = timed(update, args)
    model.eval()
    _, predicted, _ = timed(predict, args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"train": trained, "predict": predicted, "system_share": system, "peak_mb": peak, "loss": losses[-1]}


def timed(step: Any, args: argparse.Namespace) -> tuple[list[Any], float, float]:
    """Results, images a second, and the share of the CPU time that the system took; the first step is not counted."""
    step()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    results = [step() for _ in range(args.updates)]
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    system, user = after.ru_stime - before.ru_stime, after.ru_utime - before.ru_utime
    return results, args.updates * args.batch / seconds, system / (system + user)


def markdown(rows: list[dict[str, Any]], about: dict[str, Any]) -> str:
    config = about["config"]
    lines = [
        f"# Freed memory, kept or handed back: batch {config['batch']} at {config['size']}², {about['device']}",
        "",
        f"`{about['command']}`, {about['date']}, torch {about['versions']['torch']}, {about['cpu']['threads']} "
        "threads; medians of processes that alternate. Of the CPU time of training, `system` is the kernel's share.",
        "",
        "| model | freed memory | training, img/s | system | predicting, img/s | peak MB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        for keep in (False, True):
            here = [row for row in rows if (row["model"], row["keep"]) == (model, keep)]
            middle = {
                k: statistics.median(row[k] for row in here) for k in ("train", "system_share", "predict", "peak_mb")
            }
            how = "kept" if keep else "handed back"
            lines.append(
                f"| {model} | {how} | {middle['train']:.1f} | {middle['system_share']:.0%} "
                f"| {middle['predict']:.1f} | {middle['peak_mb']:.0f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
