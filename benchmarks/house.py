"""Whether the house keeps its promises of speed, on this machine's CPU.

    python benchmarks/house.py            # about a minute; `--demo` adds the time of a whole `laworder demo`

- `import laworder` in a fresh process: at most 2 s (median of five).
- phantom pictures at 256²: at least 100 a second on two cores (two processes), for each kind of picture.
- `laworder demo`: at most 6 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from common import RESULTS, manifest
from laworder.data.sources.phantom import PhantomSource

MODALITIES = ("colon", "mr", "ct")
PROCESSES = 2


def import_seconds(repeats: int = 5) -> list[float]:
    code = "import time; t = time.perf_counter(); import laworder; print(time.perf_counter() - t)"
    return [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(repeats)
    ]


def draw(work: tuple[str, int, int]) -> int:
    modality, first, count = work
    source = PhantomSource(first + count, size=256, modality=modality, distractor=0.3)
    for index in range(first, first + count):
        source.read(index)
    return count


def phantoms_per_second(modality: str, count: int, pool: ProcessPoolExecutor) -> float:
    list(pool.map(draw, [(modality, 0, 4)] * PROCESSES))  # warm-up
    share = count // PROCESSES
    began = time.perf_counter()
    done = sum(pool.map(draw, [(modality, k * share, share) for k in range(PROCESSES)]))
    return done / (time.perf_counter() - began)


def demo_seconds() -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [sys.executable, "-m", "laworder", "demo", "--out", str(Path(folder) / "demo")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400, help="pictures per kind")
    parser.add_argument("--demo", action="store_true", help="time `laworder demo`, too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    imports = import_seconds()
    with ProcessPoolExecutor(PROCESSES) as pool:
        speeds = {modality: phantoms_per_second(modality, args.count, pool) for modality in MODALITIES}
    found: dict[str, Any] = {"import_seconds": imports, "phantoms_per_second": speeds}
    if args.demo:
        found["demo_seconds"] = demo_seconds()
    told = manifest(args, device=torch.device("cpu"), seeds=[0], rooms=["data", "runs", "segmentation"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "house-cpu.json").write_text(json.dumps({"manifest": told, "results": found}, indent=1) + "\n")
    (args.out / "house-cpu.md").write_text(markdown(told, found))
    print(markdown(told, found))


def markdown(told: dict[str, Any], found: dict[str, Any]) -> str:
    rows = [("`import laworder`, median of five", f"{statistics.median(found['import_seconds']):.2f} s", "≤ 2 s")]
    rows += [
        (f"{modality} phantoms at 256², {PROCESSES} processes", f"{speed:.0f} images/s", "≥ 100 images/s")
        for modality, speed in found["phantoms_per_second"].items()
    ]
    if "demo_seconds" in found:
        rows.append(("`laworder demo`", f"{found['demo_seconds']:.0f} s", "≤ 360 s"))
    head = [f"`{told['command']}`, {told['date']}, {told['device']}, {told['cpu']['cores']} cores.", ""]
    table = ["| what | measured | promised |", "|---|---:|---:|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
    return "\n".join(["# The house's promises of speed", "", *head, *table, ""])


if __name__ == "__main__":
    main()
