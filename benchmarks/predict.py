"""`laworder seg predict` as a whole against its model alone, and its memory on a 20,000 × 20,000 TIFF.

    python benchmarks/predict.py                     # 5,000 JPEGs of 384 × 288, ORDER{0,1}
    python benchmarks/predict.py --large 20000       # the large TIFF instead
    python benchmarks/predict.py --large 20000 --exported    # the same through the ONNX file of `seg export`

Throughput: the model alone runs on batches that are in memory already (normalised, forward, sigmoid), before and after
the command, on the same threads; the share is the command's pictures per second (decode, shrink, infer, stretch, write)
over the mean of the two. Where other work shares the machine, the CPU time of a picture says more than the rates.
Memory: the command runs in a process of its own, whose peak resident size is read from the operating system. Written as
JSON with a manifest under benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import laworder
from common import RESULTS, manifest
from laworder.cli import main as command
from laworder.data.sources.phantom import PhantomSource
from laworder.segmentation.predictor import Predictor

DRAWN = 100


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        work = large if args.large else throughput
        found = work(args, Path(folder))
    about = manifest(args, device=torch.device(args.device), seeds=[0], rooms=["segmentation", "order", "segmenters"])
    result = {"manifest": about, **found}
    args.out.mkdir(parents=True, exist_ok=True)
    name = "predict-large" if args.large else "predict"
    path = args.out / f"{name}-{torch.device(args.device).type}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "manifest"}, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="order_01")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--height", type=int, default=288)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--threads", type=int, help="CPU threads of the model (default: torch's own choice)")
    parser.add_argument("--seconds", type=float, default=15, help="of the model alone, before and after")
    parser.add_argument("--large", type=int, help="side of a TIFF to predict, in place of the folder")
    parser.add_argument("--exported", action="store_true", help="with --large: run the exported ONNX file")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def throughput(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Pictures per second of the model alone, of the command, and their ratio."""
    if args.threads:
        torch.set_num_threads(args.threads)
    model = laworder.create(args.model)
    model.save_pretrained(folder / "model")
    pictures(args, folder / "in")
    device = torch.device(args.device)
    predictor = Predictor(model, device)
    before = alone(predictor, args)
    started, busy = time.perf_counter(), time.process_time()
    words = [str(folder / "model"), str(folder / "in"), "--out", str(folder / "out"), "--batch", str(args.batch)]
    workers = ["--workers", str(args.workers)] if args.workers else []
    assert command(["seg", "predict", *words, "--device", args.device, *workers]) == 0
    rate = args.count / (time.perf_counter() - started)
    cost = 1e3 * (time.process_time() - busy) / args.count
    after = alone(predictor, args)
    own_rate, own_cost = ((x + y) / 2 for x, y in zip(before, after, strict=True))
    return {
        "model_alone_images_per_second": [before[0], after[0]],
        "command_images_per_second": rate,
        "share_of_model_alone": rate / own_rate,
        "share_of_model_alone_by_cpu_time": own_cost / cost,
        "model_alone_cpu_ms_per_image": own_cost,
        "command_cpu_ms_per_image": cost,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def pictures(args: argparse.Namespace, folder: Path) -> None:
    folder.mkdir()
    source = PhantomSource(min(DRAWN, args.count), size=256)
    for k in range(len(source)):
        picture = Image.fromarray(source.read(k).image).resize((args.width, args.height), Image.Resampling.BICUBIC)
        picture.save(folder / f"{k:05d}.jpg", quality=90)
    for k in range(len(source), args.count):
        shutil.copyfile(folder / f"{k % len(source):05d}.jpg", folder / f"{k:05d}.jpg")


def alone(predictor: Predictor, args: argparse.Namespace) -> tuple[float, float]:
    """Images per second on a batch that lies on the device, and milliseconds of CPU time for each, over all threads."""
    x = torch.rand(args.batch, 3, predictor.size, predictor.size, device=predictor.device)
    prepare = predictor.model.preprocessing.normalise

    @torch.inference_mode()
    def once() -> None:
        predictor.model.probabilities(prepare(x)).cpu()

    for _ in range(3):
        once()
    started, busy, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - started < args.seconds:
        once()
        count += args.batch
    return count / (time.perf_counter() - started), 1e3 * (time.process_time() - busy) / count


def large(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Peak memory and time on one tiled RGB TIFF."""
    import tifffile

    model = folder / "model"
    laworder.create(args.model).save_pretrained(model)
    if args.exported:
        assert command(["seg", "export", str(model), "--out", str(folder)]) == 0
        model = folder / f"{args.model}.onnx"
    side = args.large
    tile = PhantomSource(1, size=256).read(0).image
    tifffile.imwrite(
        folder / "a.tif",
        (tile for _ in range((-(-side // 256)) ** 2)),
        shape=(side, side, 3),
        dtype=np.uint8,
        tile=(256, 256),
        photometric="rgb",
        compression="zlib",
    )
    started = time.perf_counter()
    words = ["seg", "predict", str(model), str(folder / "a.tif"), "--out", str(folder / "out")]
    more = ["--device", args.device, "--batch", str(args.batch), "--probabilities"]
    subprocess.run([sys.executable, "-m", "laworder", *words, *more], check=True)
    seconds = time.perf_counter() - started
    with tifffile.TiffFile(folder / "out" / "a.tif") as file:
        assert file.pages[0].shape == (side, side)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"side": side, "seconds": seconds, "peak_mb": peak, "decoded_mb": side * side * 3 / 2**20}


if __name__ == "__main__":
    main()
