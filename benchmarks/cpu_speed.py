"""ORDER{0,1} on the CPU in every backend, beside itself and MK-UNet-T in eager PyTorch, in one process.

    python benchmarks/cpu_speed.py                 # 2 threads, 256 × 256, batch 1

Every backend does the same work: uint8 images in, masks and probabilities out. They take turns (five each), so that
what else the machine does hits all alike; median over all calls with quartiles. Weights are fresh, with settled batch
norms: time does not depend on them, and agreement is measured against the same weights in PyTorch. Written as JSON with
a manifest, and as Markdown, under benchmarks/results. The aim: at most 4 ms an image, and at least 4 times faster than
either eager model.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from common import RESULTS, manifest
from laworder.segmentation.bench.backends import Backend, backends, eager, exported, names_in
from laworder.segmentation.bench.command import fresh, table
from laworder.segmentation.bench.timing import Timing, measure
from laworder.segmentation.export.agreement import pictures

EAGER, RIVAL = "PyTorch eager", "MK-UNet-T, PyTorch eager"


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    before = os.getloadavg()
    model, rival = fresh("order_01"), fresh("mkunet_t")
    image = pictures(args.batch, args.size, args.size, 3)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.files or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        there = all(path.is_file() for path in names_in(folder).values())
        files = names_in(folder) if there else exported(model, folder)
        if args.only_export:
            return
        shape = (args.batch, args.size, args.size)
        own = backends(model, files, threads=args.threads, shape=shape, compiled=False)
        other = Backend(RIVAL, "f32", rival, lambda: eager(rival))
        found = measure([*own, other], image, seconds=args.seconds)
    rooms = ["segmentation/export", "segmentation/bench", "order"]
    load = {"load_average_before": before, "load_average_after": os.getloadavg()}
    about = manifest(args, device=torch.device("cpu"), seeds=[0], rooms=rooms, settings=load)
    result = {"manifest": about, "aim": aim(found, args.batch), "backends": [asdict(t) for t in found]}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cpu_speed.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "cpu_speed.md").write_text(markdown(found, result, args))
    print(markdown(found, result, args))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=8, help="spent on each backend")
    parser.add_argument("--files", type=Path, help="folder of the exported files; made if missing, else used again")
    parser.add_argument(
        "--only-export", action="store_true", help="fill the folder, to measure later on a quiet machine"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def aim(found: list[Timing], batch: int) -> dict[str, Any]:
    """The fastest backend, and the fastest that computes in float32, against both eager models: by medians, and by the
    fastest call of each, which other work on the machine touches least."""
    exported = [t for t in found if not t.name.startswith("PyTorch") and t.name != RIVAL]
    itself, rival = (next(t for t in found if t.name == name) for name in (EAGER, RIVAL))

    def entry(chosen: list[Timing]) -> dict[str, Any]:
        best = min(chosen, key=lambda t: t.median_ms)
        return {
            "backend": best.name,
            "ms_per_image": best.median_ms / batch,
            "ms_per_image_fastest": best.fastest_ms / batch,
            "times_faster_than_itself_eager": itself.median_ms / best.median_ms,
            "times_faster_than_itself_eager_fastest": itself.fastest_ms / best.fastest_ms,
            "times_faster_than_mkunet_t_eager": rival.median_ms / best.median_ms,
            "times_faster_than_mkunet_t_eager_fastest": rival.fastest_ms / best.fastest_ms,
            "largest_difference": best.largest_difference,
            "mask_agreement": best.mask_agreement,
        }

    return {"fastest": entry(exported), "fastest_in_float32": entry([t for t in exported if t.precision == "f32"])}


def markdown(found: list[Timing], result: dict[str, Any], args: argparse.Namespace) -> str:
    about = result["manifest"]
    title = f"# ORDER{{0,1}} on the CPU: batch {args.batch}, {args.size}², {args.threads} threads, {about['device']}"
    low, high = (about["settings"][f"load_average_{when}"][0] for when in ("before", "after"))
    how = (
        f"`{about['command']}`, {about['date']}, torch {about['versions']['torch']}. Load average of the machine "
        f"{low:.1f} before and {high:.1f} after: where that is much above {args.threads}, other work ran beside it, "
        "and the fastest calls say more than the medians."
    )
    lines = [table(found, f"{title}\n\n{how}"), ""]
    for label, best in (("Fastest", "fastest"), ("Fastest in float32", "fastest_in_float32")):
        e = result["aim"][best]
        lines.append(
            f"{label}: {e['backend']}, {e['ms_per_image']:.2f} ms an image by its median and "
            f"{e['ms_per_image_fastest']:.2f} by its fastest call; against itself in eager PyTorch "
            f"{e['times_faster_than_itself_eager']:.1f} and {e['times_faster_than_itself_eager_fastest']:.1f} times "
            f"faster, against MK-UNet-T in eager PyTorch {e['times_faster_than_mkunet_t_eager']:.1f} and "
            f"{e['times_faster_than_mkunet_t_eager_fastest']:.1f}.  "
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
