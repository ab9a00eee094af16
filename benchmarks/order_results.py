"""ORDER and its rivals on polyps and BRISC: the `paper` recipe with seeds 0-4, and a search for `best` with the same
effort for every model. Made for a GPU that is lent for minutes: it stops in time, and goes on where it stopped.

1. Pack the data, here, once. A pack is a folder of images (WebP) and masks (PNG) at the training size, small enough to
   travel; names stay, so that a seed splits a pack as it splits the data.

    python benchmarks/order_results.py pack --data polyps:order --to packs/polyps
    python benchmarks/order_results.py pack --data brisc:order  --to packs/brisc
    python benchmarks/order_results.py pack --data brisc:test   --to packs/brisc-test

2. Run, as often as it takes. STATE is what the last call left in OUT (leave it out the first time). OUT then holds
   results.json (every finished run, score by score), weights.safetensors (fp16, of models under 100,000 parameters) and
   state.tar (what was under way, where it is small; a larger run begins anew). None is above 16 MiB.

    python benchmarks/order_results.py run --data polyps=packs/polyps brisc=packs/brisc --test brisc=packs/brisc-test \\
        --configs paper --seeds 0-4 --minutes 8.5 --state STATE --out OUT
    python benchmarks/order_results.py run … --configs search --seeds 0 --minutes 8.5 --state STATE --out OUT
    python benchmarks/order_results.py run … --configs chosen --seeds 0-4 --minutes 8.5 --state STATE --out OUT

   `search` tries every entry of SEARCH on the validation split, for every model the same ones; `chosen` takes, for each
   model and data set, the one with the best validation Dice of seed 0. Test sets decide nothing.

3. Write it up, from results.json, beside the paper's numbers: benchmarks/results/order_results.json and .md.

    python benchmarks/order_results.py table --state OUT

The whole of it at toy size on a CPU, in a minute: `--device cpu --size 32 --epochs 1 --seeds 0-1 --models order_01 unet
--no-compile` with a pack of a few images.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import statistics
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from common import RESULTS, manifest
from laworder import published
from laworder.config import build
from laworder.data.load import Arrays, load_arrays, source_hash
from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import PairDataset
from laworder.errors import UserError
from laworder.presets import read_preset
from laworder.runs import Stopped, atomic_write, read_manifest, read_metrics
from laworder.segmentation.evaluate import evaluate
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.together.members import check_model, parse_seeds
from laworder.segmentation.together.train import train_together
from laworder.segmentation.train import train
from laworder.segmenters import create
from laworder.segmenters.profile import count_parameters

MODELS: dict[str, tuple[str, ...]] = {
    "order_backbone": ("ORDER backbone", "None"),
    "order_se": ("ORDER backbone + SE skip",),
    "order_cbam": ("ORDER backbone + CBAM skip",),
    "order_01": ("ORDER{0,1}", "Deep skips {0,1}"),
    "order_12": ("ORDER{1,2}", "Mixed skips {1,2}"),
    "order_23": ("Shallow skips {2,3}",),
    "order_0123": ("All skips {0,1,2,3}",),
    "mkunet_t": ("MK-UNet",),
    "egeunet": (),
    "egeunet_paper": ("EGE-UNet",),
    "unet": ("nnUNet",),
}
"""Ours, and the rows of the paper's tables that it belongs to (its "nnUNet" is a plain U-Net; `egeunet` has the widths
of EGE-UNet's authors, which are not those of the paper's row)."""
SEARCH: dict[str, dict[str, Any]] = {
    "best": {},
    "lr 1e-3": {"optimiser.lr": 1e-3},
    "lr 6e-3": {"optimiser.lr": 6e-3},
    "weaker colour and scale": {"augment.scale": 0.1, "augment.shift": 0.05, "augment.brightness": 0.1,
                                "augment.contrast": 0.1, "augment.saturation": 0.1},
    "paper augmentation": {"augment.rotate": 15, "augment.scale": 0, "augment.shift": 0, "augment.brightness": 0,
                           "augment.contrast": 0, "augment.saturation": 0},
    "averaged": {"optimiser.ema": 0.999},
    "slow average rising": {"optimiser.mix_warmup": 10000, "optimiser.warmup": 200},
    "adamw": {"optimiser.name": "adamw", "optimiser.weight_decay": 1e-2},
}  # fmt: skip
"""Changes to the preset `best`; every model gets all of them."""
SMALL = 100_000
STATE_BYTES = 15 * 2**20


def main() -> None:
    args = arguments()
    {"pack": pack, "run": run, "table": table}[args.action](args)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("pack")
    one.add_argument("--data", required=True, help="what `seg train` takes")
    one.add_argument("--to", type=Path, required=True)
    one.add_argument("--size", type=int, default=256)
    one.add_argument("--quality", type=int, default=90)
    one.add_argument("--limit", type=int, help="only so many pairs, for trying out")
    two = actions.add_parser("run")
    two.add_argument("--data", nargs="+", required=True, help="name=pack, trained and validated on")
    two.add_argument("--test", nargs="*", default=[], help="name=pack, judged at the end")
    two.add_argument("--configs", choices=("paper", "search", "chosen"), default="paper")
    two.add_argument("--models", nargs="+", default=list(MODELS))
    two.add_argument("--seeds", default="0-4")
    two.add_argument("--epochs", type=int, help="instead of the recipe's")
    two.add_argument("--size", type=int, default=256)
    two.add_argument("--device", default="auto")
    two.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    two.add_argument("--minutes", type=float, default=8.5)
    two.add_argument("--state", type=Path)
    two.add_argument("--work", type=Path, default=Path("order_results_work"))
    two.add_argument("--out", type=Path, required=True)
    three = actions.add_parser("table")
    three.add_argument("--state", type=Path, required=True)
    three.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def pack(args: argparse.Namespace) -> None:
    source = open_source(args.data, masks=None, size=args.size, phantom=Phantom())
    chosen = list(range(len(source)))[: args.limit]
    dataset = PairDataset(source, size=args.size, channels=3, indices=chosen)
    for kind in ("images", "masks"):
        (args.to / kind).mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(dataset.names):
        item = dataset[index]
        picture = Image.fromarray(item["image"].permute(1, 2, 0).numpy())
        picture.save(args.to / "images" / f"{name}.webp", quality=args.quality, method=6)
        Image.fromarray((item["mask"][0].numpy() > 0).astype(np.uint8) * 255).convert("1").save(
            args.to / "masks" / f"{name}.png"
        )
    told = {"pairs": len(dataset), "size": args.size, "quality": args.quality, "of": source_hash(source)}
    size = sum(path.stat().st_size for path in args.to.rglob("*") if path.is_file())
    print(f"{args.to}: {told}, {size / 2**20:.1f} MiB")


class Work:
    """What is finished, what is under way, and how long there is."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rows, self.failed, self.weights = args, [], [], {}
        self.deadline = time.monotonic() + 60 * args.minutes
        args.out.mkdir(parents=True, exist_ok=True)
        args.work.mkdir(parents=True, exist_ok=True)
        if args.state is not None and (args.state / "results.json").is_file():
            before = json.loads((args.state / "results.json").read_text())
            self.rows, self.failed = before["rows"], before["failed"]
            if (args.state / "weights.safetensors").is_file():
                self.weights = load_file(args.state / "weights.safetensors")
            if (args.state / "state.tar").is_file():
                with tarfile.open(args.state / "state.tar") as tar:
                    tar.extractall(args.work, filter="data")
        self.save()

    def finished(self, *key: Any) -> bool:
        return any((r["config"], r["dataset"], r["model"], r["seed"]) == key for r in self.rows)

    def save(self) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        about = manifest(self.args, device=device, seeds=parse_seeds(self.args.seeds), rooms=["segmentation", "order",
                                                                                            "segmenters"])  # fmt: skip
        atomic_write(
            self.args.out / "results.json",
            json.dumps({"manifest": about, "rows": self.rows, "failed": self.failed}) + "\n",
        )
        if self.weights:
            save_file(self.weights, self.args.out / "weights.safetensors")

    def save_state(self) -> None:
        """The unfinished runs, as long as they are small."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for about in sorted(self.args.work.rglob("manifest.json")):
                tar.add(about.parent, about.parent.relative_to(self.args.work))
        if buffer.tell() <= STATE_BYTES:
            (self.args.out / "state.tar").write_bytes(buffer.getvalue())
        else:
            print(f"what is under way takes {buffer.tell() / 2**20:.0f} MiB and stays behind", flush=True)


def run(args: argparse.Namespace) -> None:
    work = Work(args)
    signal.signal(signal.SIGTERM, lambda *_: None)  # between runs a stop has nothing to save
    timer = threading.Timer(60 * args.minutes, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    tests = {name: load_arrays(opened(folder, args), args.size, 3) for name, folder in named(args.test).items()}
    try:
        for dataset, folder in named(args.data).items():
            for model in args.models:
                for config in configs(work, dataset, model):
                    try:
                        one_job(work, config, dataset, folder, model, tests.get(dataset))
                    except UserError as error:  # it diverged, say: the others go on
                        print(f"failed: {error}", flush=True)
                        work.failed.append({"config": config, "dataset": dataset, "model": model, "why": str(error)})
                        work.save()
    except Stopped:
        print("out of time; the same command with --state goes on", flush=True)
    timer.cancel()
    work.save_state()


def named(pairs: list[str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)


def opened(folder: str, args: argparse.Namespace) -> Any:
    return open_source(folder, masks=None, size=args.size, phantom=Phantom())


def configs(work: Work, dataset: str, model: str) -> list[str]:
    """Names of the settings that this model is to be trained with."""
    if work.args.configs != "chosen":
        return ["paper"] if work.args.configs == "paper" else list(SEARCH)
    tried = [r for r in work.rows if (r["dataset"], r["model"], r["seed"]) == (dataset, model, 0)]
    tried = [r for r in tried if r["config"] in SEARCH]
    lost = sum((f["dataset"], f["model"]) == (dataset, model) and f["config"] in SEARCH for f in work.failed)
    if len(tried) + lost < len(SEARCH):
        raise SystemExit(f"{model} on {dataset}: {len(tried)} of {len(SEARCH)} tried; finish --configs search first")
    return [max(tried, key=lambda r: r["val"]["dice"])["config"]]


def settings(args: argparse.Namespace, config: str, data: str, model: str, out: Path) -> dict[str, Any]:
    recipe = read_preset("seg train", "paper" if config == "paper" else "best")
    epochs = {"epochs": args.epochs} if args.epochs else {}
    gpu = torch.cuda.is_available() and args.device != "cpu"
    here = {"data": data, "out": out, "model": model, "size": args.size, "device": args.device, "log": "none",
            "split_by": "image", "precision": "bf16" if gpu else "fp32", "compile": args.compile}  # fmt: skip
    given = {**recipe, **SEARCH.get(config, {}), **epochs, **here}
    return {**given, "optimiser.warmup": 0} if args.epochs else given  # few updates leave no room for it


def one_job(work: Work, config: str, dataset: str, data: str, model: str, test: Arrays | None) -> None:
    """All seeds that are missing: together where the model can be stacked, else one after the other."""
    args = work.args
    if any((f["config"], f["dataset"], f["model"]) == (config, dataset, model) for f in work.failed):
        return
    seeds = [s for s in parse_seeds(args.seeds) if not work.finished(config, dataset, model, s)]
    if not seeds:
        return
    if time.monotonic() > work.deadline:
        raise Stopped(signal.SIGTERM)
    folder = args.work / config.replace(" ", "_") / dataset / model
    given = settings(args, config, data, model, folder)
    stacked = stackable(model)
    print(f"{config} · {dataset} · {model} · seeds {seeds}", flush=True)
    if stacked:
        train_together(build(TrainConfig, {**given, "seeds": ",".join(map(str, seeds))}))
    for seed in seeds:
        own = folder / f"seed-{seed}"
        if not stacked:
            train(build(TrainConfig, {**given, "seed": seed, "out": own}))
        work.rows.append(row(own, config, dataset, model, seed, args, test))
        kept = load_segmenter(str(own), device=torch.device("cpu"))
        if count_parameters(kept) <= SMALL:
            prefix = f"{config}/{dataset}/{model}/seed-{seed}/"
            work.weights |= {prefix + k: v.half() if v.is_floating_point() else v for k, v in kept.state_dict().items()}
        work.save()
        shutil.rmtree(own)


def stackable(model: str) -> bool:
    try:
        check_model(create(model), model)
    except UserError:
        return False
    return True


def row(
    folder: Path, config: str, dataset: str, model: str, seed: int, args: argparse.Namespace, test: Arrays | None
) -> dict[str, Any]:
    told, lines = read_manifest(folder), read_metrics(folder / "metrics.jsonl")
    timing = [line["seconds"] for line in read_metrics(folder / "timing.jsonl")]
    summary = json.loads((folder / "evaluation.json").read_text())["validation"]
    found = {
        "config": config, "dataset": dataset, "model": model, "seed": seed, "params": count_parameters(create(model)),
        "val": summary, "updates": lines[-1]["step"], "seconds_an_update": statistics.median(timing),
        "val_curve": [round(line["val_dice"], 4) for line in lines if "val_dice" in line],
        "settings": told.config, "data": told.data, "device": told.device, "versions": told.versions,
    }  # fmt: skip
    if test is not None:
        device = torch.device("cuda" if torch.cuda.is_available() and args.device != "cpu" else "cpu")
        judged = evaluate(load_segmenter(str(folder), device=device), test, batch=16, device=device)
        found["test"] = {**judged.summary(), "dice_per_image": [round(d, 4) for d in judged.counts.dice().tolist()]}
    return found


def table(args: argparse.Namespace) -> None:
    result = json.loads((args.state / "results.json").read_text())
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "order_results.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "order_results.md").write_text(markdown(result))
    print(markdown(result))


def markdown(result: dict[str, Any]) -> str:
    """One table for each recipe and data set; the two recipes never share one."""
    rows, about = result["rows"], result["manifest"]
    lines = ["# ORDER and what it is compared with", "", f"Last call: `{about['command']}`, {about['date']}, "
             f"{about['device']}, torch {about['versions']['torch']}. Dice in percent, mean ± standard deviation over "
             "seeds, on the validation split; the paper's test images are others."]  # fmt: skip
    tried = {(r["dataset"], r["model"]) for r in rows if r["config"] in SEARCH}
    for dataset in sorted({r["dataset"] for r in rows}):
        for paper in (True, False):
            here = [r for r in rows if r["dataset"] == dataset and (r["config"] == "paper") == paper]
            if not here:
                continue
            kind = "recipe `paper`" if paper else f"recipe `best`, {len(SEARCH)} settings tried for each model"
            lines += ["", f"## {dataset}, {kind}", "", "| model | settings | parameters | seeds | validation "
                      "| validation, lesions only | test | test, lesions only | the paper |",
                      "|---|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
            for model in MODELS:
                for config in sorted({r["config"] for r in here if r["model"] == model}):
                    lines.append(table_line(model, config, dataset, [
                        r for r in here if r["model"] == model and r["config"] == config
                    ]))  # fmt: skip
    lines += ["", f"{len(tried)} pairs of model and data set were searched."]
    lines += [f"Failed: {f['model']} on {f['dataset']}, {f['config']}: {f['why']}" for f in result["failed"]]
    return "\n".join(lines) + "\n"


def table_line(model: str, config: str, dataset: str, rows: list[dict[str, Any]]) -> str:
    def spread(part: str, name: str) -> str:
        values = [100 * r[part][name] for r in rows if part in r and r[part][name] is not None]
        if not values:
            return "–"
        return f"{statistics.mean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")

    theirs = [
        f"{row.mean}" + (f" ± {row.std}" if row.std is not None else "")
        for method in MODELS[model]
        for row in published.find(method=method, dataset=dataset, metric="dice")
        if row.table.startswith(("segmentation", "ablation_stages"))
    ]
    told = " / ".join(dict.fromkeys(theirs))
    cells = [spread(part, name) for part in ("val", "test") for name in ("dice", "dice_lesion_only")]
    return f"| {model} | {config} | {rows[0]['params']:,} | {len(rows)} | {' | '.join(cells)} | {told or '–'} |"


if __name__ == "__main__":
    main()
