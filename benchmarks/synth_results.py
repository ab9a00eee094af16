"""The objectives against each other on real data, with backbone small: same start, same steps, several seeds.

On a GPU machine without network, in calls of ten minutes (each call does what it has time for, and the next one goes
on; what a call of an earlier session had made is handed back with --from):

    laworder data prepare polyps --from DOWNLOAD --to data/polyps                                     # once, anywhere
    python benchmarks/synth_results.py run --name polyps --data data/polyps:law --autoencoder taef2 \\
        --work work --out OUT --minutes 9 [--from EARLIER_OUT]
    python benchmarks/synth_results.py collect --name polyps OUT1 OUT2 …                             # the table
    python benchmarks/synth_results.py run --name tiny --tiny --work W --out OUT --minutes 3         # toy sizes

One split by the data's groups holds a tenth out, for everything. Then, in this order: a judge (an ORDER trained on the
real training part), the image prior, and for each seed and objective a training of stage control from that prior and
one image for each mask, of the training part and of the held-out part. The prior is rounded to fp16 before anything
starts from it, so that the file that travels is the very start of all of them.

In --out, at most 8 files of 16 MB: `results.json`, `judge.tar`, `prior-K.safetensors` (fp16), `sheet-SEED.jpg` (one row
an objective, the same held-out masks), and `images-K.tar` with the drawn images as WebP; what had no room waits for the
next call of the same session. FID and the like are computed from those by `laworder evaluate`, where its networks are.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import signal
import statistics
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from common import RESULTS, manifest
from laworder.config import build
from laworder.data.opening import Phantom, open_source
from laworder.data.split_files import names_hash, read_splits, write_splits
from laworder.data.splits import Split, split_source
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import read_card
from laworder.diffusion.sampling.command import run as sample
from laworder.diffusion.sampling.settings import SampleConfig
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.start import starting_backbone
from laworder.diffusion.train import train
from laworder.presets import read_preset
from laworder.report import contour
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.settings import TrainConfig as JudgeConfig
from laworder.segmentation.train import train as train_judge

OBJECTIVES = ("uniform", "constant", "ratio", "distillation", "law", "law_plus")
LIMIT, FILES, TOTAL = 15_500_000, 8, 60_000_000
"""Of what travels back: bytes a file, files, bytes together."""
SHOWN = 8
TINY = {"backbone": "tiny", "size": 32, "batch": 4, "steps": 3, "watch.validation": 3, "watch.images": 2,
        "watch.steps": 2, "watch.every": 100, "precision": "fp32", "optimiser.warmup": 0}  # fmt: skip


class Study:
    """What is done, lies in `work`; what is new since the last call, goes to `out`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.work, self.out = args, args.work, args.out
        self.began = time.monotonic()
        self.work.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.state: dict[str, Any] = {"jobs": {}, "sent": {}}
        if (self.work / "state.json").is_file():
            self.state = json.loads((self.work / "state.json").read_text())
        elif args.earlier:
            self.take_up(args.earlier)
        self.split_file = self.work / "split.json"
        self.split = self._split()

    def _split(self) -> Split:
        source = open_source(self.args.data, masks=self.args.masks, size=self.size, phantom=self.phantom)
        if not self.split_file.is_file():
            write_splits(self.split_file, [split_source(source, val=0.1 if not self.args.tiny else 0.3, seed=0)])
        return read_splits(self.split_file, source.names)[0]

    @property
    def size(self) -> int:
        return 32 if self.args.tiny else 256

    @property
    def phantom(self) -> Phantom:
        return Phantom(count=16) if self.args.tiny else Phantom()

    def left(self) -> float:
        """Seconds."""
        return self.args.minutes * 60 - (time.monotonic() - self.began)

    def save(self) -> None:
        (self.work / "state.json").write_text(json.dumps(self.state, indent=1))

    def common(self) -> dict[str, Any]:
        return {"data": self.args.data, "masks": self.args.masks, "split": self.split_file, "log": "none",
                **({"phantom.count": 16} if self.args.tiny else {})}  # fmt: skip

    def diffusion(self, preset: str, **more: Any) -> TrainConfig:
        values = {**read_preset("synth train", preset), **self.common()}
        values |= TINY if self.args.tiny else {"network.compile": self.args.compile}
        return build(TrainConfig, {**values, **{k.replace("__", "."): v for k, v in more.items()}})

    # The jobs, in their order. Each is a command of the product, run in this process.

    def judge(self) -> dict[str, Any]:
        values = {**self.common(), "model": "order_01", "size": self.size, "out": self.work / "judge", "batch": 16,
                  "optimiser.name": "adamw", "optimiser.lr": 3e-3, "optimiser.ema": 0.99, "validate_every": 5,
                  "epochs": self.args.judge_epochs}  # fmt: skip
        if self.args.tiny:
            values |= {"batch": 4, "epochs": 1, "validate_every": 1}
        found = train_judge(build(JudgeConfig, values))
        load_segmenter(str(self.work / "judge"), device=torch.device("cpu")).save_pretrained(self.work / "judge-model")
        return {"real_held_out_dice": found.validation.summary()["dice"]}

    def prior(self) -> dict[str, Any]:
        steps = (
            {} if self.args.tiny else {"steps": self.args.prior_steps, "network__autoencoder": self.args.autoencoder}
        )
        found = train(self.diffusion("small-prior", stage="prior", out=self.work / "prior-run", **steps))
        backbone = Backbone.load(self.work / "prior-run")
        backbone.unet.half().float()
        backbone.save(self.work / "prior")
        return {"step": found["step"], **found["metrics"]}

    def control(self, objective: str, seed: int) -> dict[str, Any]:
        """One training under one objective, and the images it draws."""
        out = self.work / f"{objective}-{seed}"
        steps = {} if self.args.tiny else {"steps": self.args.control_steps}
        given = {"prior": self.work / "prior", "objective": objective, "seed": seed, "out": out, **steps}
        began = time.monotonic()
        found = train(self.diffusion("small", watch__judge=str(self.work / "judge-model"), **given))
        trained = time.monotonic()
        drawn = self.work / f"{objective}-{seed}-images"
        config = {**{k: v for k, v in self.common().items() if k not in ("split", "log")}, "model": out, "out": drawn,
                  "seed": seed, "batch": self.args.sample_batch, "filter.judge": str(self.work / "judge-model"),
                  "filter.least": 0.0, "steps": 2 if self.args.tiny else self.args.sample_steps,
                  "compile": "default" if self.args.compile else "no",
                  "precision": "fp32" if self.args.tiny else "bf16"}  # fmt: skip
        sample(build(SampleConfig, config))
        dice = {record["name"]: record["recovered_dice"] for record in records_of(drawn)}
        parts = {"train": set(self.split.train), "held_out": set(self.split.val)}
        recovered = {
            part: statistics.mean([value for name, value in dice.items() if name in names])
            for part, names in parts.items()
        }
        return {
            "objective": objective,
            "seed": seed,
            "step": found["step"],
            "verdict": found["verdict"],
            "watch": found["metrics"],
            "recovered_dice": recovered,
            "seconds": {"train": trained - began, "sample": time.monotonic() - trained},
        }

    def go(self) -> None:
        """Every job that is not done, as long as there is time."""
        todo: list[tuple[str, Any]] = [("judge", self.judge), ("prior", self.prior)]
        for seed in self.args.seeds:
            todo += [(f"{o}-{seed}", lambda o=o, s=seed: self.control(o, s)) for o in self.args.objectives]
        signal.signal(signal.SIGTERM, time_is_up)  # between runs; within one, the run's own handler saves first
        timer = threading.Timer(max(1.0, self.left()), os.kill, [os.getpid(), signal.SIGTERM])
        timer.daemon = True
        timer.start()
        try:
            for name, job in todo:
                if name in self.state["jobs"]:
                    continue
                print(f"{name}: {self.left():.0f} s left", flush=True)
                self.state["jobs"][name] = job()
                self.save()
                print(name, json.dumps(self.state["jobs"][name]), flush=True)
        except SystemExit as stopped:  # a run that was told to stop has saved: the next call goes on with it
            print(f"stopped: {stopped}", flush=True)
        finally:
            timer.cancel()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # What travels.

    def send(self) -> None:
        """Fill `out`; state.json remembers what images were sent."""
        told = argparse.Namespace(**{**vars(self.args), "earlier": [str(path) for path in self.args.earlier]})
        stamp = manifest(told, device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
                         seeds=self.args.seeds, rooms=["diffusion", "law", "order", "segmentation"],
                         data={"split": names_hash(self.split.val)})  # fmt: skip
        if (self.work / "judge-model").is_dir():
            with tarfile.open(self.out / "judge.tar", "w") as tar:
                tar.add(self.work / "judge-model", "judge-model")
        if "prior" in self.state["jobs"] and "prior" not in self.state["sent"]:
            self.send_prior()
        for seed in self.args.seeds:
            self.sheet(seed)
        self.send_images()
        self.save()
        content = {"manifest": stamp, "split": json.loads(self.split_file.read_text()), **self.state}
        (self.out / "results.json").write_text(json.dumps(content, indent=1) + "\n")
        for path in sorted(self.out.iterdir()):
            assert path.stat().st_size <= 16 * 2**20, f"{path} is too large to travel"

    def send_prior(self) -> None:
        model = Backbone.load(self.work / "prior")
        chunks, size = [{}], 0
        for name, value in model.unet.state_dict().items():
            half = value.half().contiguous()
            size += half.nbytes
            if size > LIMIT:
                chunks.append({})
                size = half.nbytes
            chunks[-1][name] = half
        card = {"card": json.dumps(read_card(self.work / "prior"))}
        for number, chunk in enumerate(chunks):
            save_file(chunk, self.out / f"prior-{number}.safetensors", metadata=card)
        self.state["sent"]["prior"] = 1

    def take_up(self, earlier: list[Path]) -> None:
        """What another session's calls had sent back: results, judge, prior."""
        halves: dict[str, torch.Tensor] = {}
        for folder in earlier:
            content = json.loads((folder / "results.json").read_text())
            self.state["jobs"] |= content["jobs"]
            self.state["sent"] |= content["sent"]
            (self.work / "split.json").write_text(json.dumps(content["split"]))
            if (folder / "judge.tar").is_file():
                with tarfile.open(folder / "judge.tar") as tar:
                    tar.extractall(self.work, filter="data")
            for path in sorted(folder.glob("prior-*.safetensors")):
                halves |= load_file(path)
        if halves:
            self.split_file = self.work / "split.json"
            steps = {} if self.args.tiny else {"network__autoencoder": self.args.autoencoder}
            backbone = starting_backbone(self.diffusion("small-prior", stage="prior", **steps))
            backbone.unet.load_state_dict({name: value.float() for name, value in halves.items()})
            path = next(p for folder in earlier for p in folder.glob("prior-0.safetensors"))
            card = card_in(path)
            backbone.mean, backbone.std = (
                torch.tensor(card["latents"][k]).reshape(1, -1, 1, 1) for k in ("mean", "std")
            )
            backbone.card = {k: v for k, v in card.items() if k not in ("latents", "weights", "prompts")}
            backbone.save(self.work / "prior")
        self.save()

    def send_images(self) -> None:
        """WebP of what was not sent yet, run by run, as far as files and bytes go; the rest waits for the next call."""
        room = FILES - len(list(self.out.iterdir())) - 1  # results.json comes last
        left = TOTAL - sum(path.stat().st_size for path in self.out.iterdir())
        for number in range(max(0, room)):
            waiting = self.waiting()[: LIMIT // 2000]
            limit = min(LIMIT, left)
            if not waiting or limit < LIMIT / 10:
                return
            with tarfile.open(self.out / f"images-{number}.tar", "w") as tar, ThreadPoolExecutor() as pool:
                packed = pool.map(lambda one: webp_of(one[1], self.args.quality), waiting)
                for (run, path), data in zip(waiting, packed, strict=True):
                    if tar.offset + len(data) + 20_000 > limit:
                        break
                    info = tarfile.TarInfo(f"{run}/{path.stem}.webp")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                    self.state["sent"][run] = self.state["sent"].get(run, 0) + 1
            left -= (self.out / f"images-{number}.tar").stat().st_size

    def waiting(self) -> list[tuple[str, Path]]:
        """Drawn images that did not travel yet, of this session's runs, those of held-out masks first."""
        found: list[tuple[str, Path]] = []
        first = set(self.split.val)
        for run in (name for name, job in self.state["jobs"].items() if "objective" in job):
            drawn = (self.work / f"{run}-images" / "images").glob("*.png")
            images = sorted(drawn, key=lambda path: (path.stem not in first, path.stem))
            found += [(run, path) for path in images[self.state["sent"].get(run, 0) :]]
        return found

    def sheet(self, seed: int) -> None:
        """Rows: masks, real images, then each objective's images of the same held-out masks."""
        done = [o for o in self.args.objectives if f"{o}-{seed}" in self.state["jobs"]]
        done = [o for o in done if (self.work / f"{o}-{seed}-images").is_dir()]
        if not done:
            return
        source = open_source(self.args.data, masks=self.args.masks, size=self.size, phantom=self.phantom)
        every = max(1, len(self.split.val) // SHOWN)
        names = list(self.split.val)[::every][:SHOWN]
        pairs = [source.read(list(source.names).index(name)) for name in names]
        masks = [fitted(p.mask * np.uint8(255), self.size, Image.Resampling.NEAREST) for p in pairs]
        rows = [masks, [fitted(p.image, self.size, Image.Resampling.BICUBIC) for p in pairs]]
        for objective in done:
            folder = self.work / f"{objective}-{seed}-images" / "images"
            drawn = [np.asarray(Image.open(folder / f"{name}.png").convert("RGB")) for name in names]
            rows.append(
                [contour(d, m[..., 0] > 0) if i % 2 else d for i, (d, m) in enumerate(zip(drawn, masks, strict=True))]
            )
        picture = np.concatenate([np.concatenate(row, axis=1) for row in rows])
        Image.fromarray(picture).save(self.out / f"sheet-{seed}.jpg", quality=88)
        (self.work / f"sheet-{seed}.txt").write_text("\n".join(["mask", "real", *done]))


def time_is_up(*_: Any) -> None:
    raise SystemExit("the time is up")


def records_of(folder: Path) -> list[dict[str, Any]]:
    """The pairs that a sampled folder lists."""
    content = json.loads((folder / "dataset.json").read_text())
    return content["pairs"]


def fitted(array: np.ndarray, size: int, how: Image.Resampling) -> np.ndarray:
    return np.asarray(Image.fromarray(array.squeeze()).convert("RGB").resize((size, size), how))


def webp_of(path: Path, quality: int) -> bytes:
    data = io.BytesIO()
    Image.open(path).save(data, "WEBP", quality=quality)
    return data.getvalue()


def card_in(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["card"])


def collect(args: argparse.Namespace) -> None:
    """One table from what the calls sent back, under benchmarks/results."""
    jobs: dict[str, Any] = {}
    stamps: list[dict[str, Any]] = []
    for folder in args.folders:
        content = json.loads((folder / "results.json").read_text())
        jobs |= content["jobs"]
        stamps.append(content["manifest"])
    runs = [job for job in jobs.values() if "objective" in job]
    lines = [
        f"# Objectives against each other: backbone small on {args.name}, {stamps[-1]['device']}",
        "",
        "One prior, one split (a tenth held out by groups), the same steps; mean ± standard deviation over seeds. "
        f"Recovered Dice is that of an ORDER{{0,1}} trained on the real training part, which reaches "
        f"{jobs['judge']['real_held_out_dice']:.3f} on the real held-out images.",
        "",
        f"Calls like `{stamps[-1]['command']}`, {stamps[0]['date']} to {stamps[-1]['date']}, torch "
        f"{stamps[-1]['versions']['torch']}.",
        "",
        "| objective | seeds | recovered Dice, held-out masks | training masks | realism (less is better) |",
        "|---|---:|---:|---:|---:|",
    ]
    for objective in dict.fromkeys(run["objective"] for run in runs):
        own = [run for run in runs if run["objective"] == objective]
        cells = [spread([run["recovered_dice"][part] for run in own]) for part in ("held_out", "train")]
        cells.append(spread([run["watch"]["val_realism"] for run in own]))
        lines.append(f"| {objective} | {len(own)} | {' | '.join(cells)} |")
    target = args.to / f"synth-{args.name}"
    target.with_suffix(".json").write_text(json.dumps({"manifests": stamps, "jobs": jobs}, indent=1) + "\n")
    target.with_suffix(".md").write_text("\n".join(lines) + "\n")
    for folder in args.folders:
        for sheet in folder.glob("sheet-*.jpg"):
            shutil.copy(sheet, args.to / f"synth-{args.name}-{sheet.name}")
    print("\n".join(lines))


def spread(values: list[float]) -> str:
    """Mean ± standard deviation; what could not be measured is said, not left out."""
    found = [value for value in values if math.isfinite(value)]
    if len(found) < len(values):
        return f"not measurable in {len(values) - len(found)} of {len(values)}"
    return f"{statistics.mean(found):.3f}" + (f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else "")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--name", required=True)
    run.add_argument("--data", default="phantom")
    run.add_argument("--masks", type=Path)
    run.add_argument("--autoencoder", type=Path)
    run.add_argument("--work", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--from", dest="earlier", type=Path, nargs="*", default=[], help="what earlier sessions sent back")
    run.add_argument("--minutes", type=float, default=9.0)
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    run.add_argument("--objectives", nargs="+", default=list(OBJECTIVES))
    run.add_argument("--judge-epochs", type=int, default=60)
    run.add_argument("--prior-steps", type=int, default=6000)
    run.add_argument("--control-steps", type=int, default=1000)
    run.add_argument("--sample-steps", type=int, default=50)
    run.add_argument("--sample-batch", type=int, default=128)
    run.add_argument("--quality", type=int, default=80)
    run.add_argument("--compile", action="store_true")
    run.add_argument("--tiny", action="store_true")
    gather = verbs.add_parser("collect")
    gather.add_argument("--name", required=True)
    gather.add_argument("--to", type=Path, default=RESULTS)
    gather.add_argument("folders", type=Path, nargs="+")
    return parser.parse_args()


def main() -> None:
    args = parsed()
    if args.verb == "collect":
        collect(args)
        return
    study = Study(args)
    study.go()
    study.send()


if __name__ == "__main__":
    main()
