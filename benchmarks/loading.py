"""How fast training pairs come: our cache against the plain way to write it, side by side in one process.

    pip install albumentations opencv-python-headless     # the peer; not a dependency of ours
    python benchmarks/loading.py prepared/polyps:order --out benchmarks/results/loading.json
    python benchmarks/loading.py --tiny                   # drawn pairs, does it run?

Everyone loads the same prepared pairs at 256², shuffled, in batches of 16, on two cores:

- `cache`: `PairCache.epoch` after the first epoch: batches of uint8, as they go to the device, where ours augments
- `cache, first epoch`: the same while it decodes and fills
- `cache + augment on the CPU`: with flips and rotation on these same two cores, for people without a GPU
- `plain`: torch's DataLoader with 2 workers, Pillow, albumentations (resize, flips, rotation by up to 15°)
- `plain, resize only`: the same without flips and rotation: nothing but what our cache does

A round is one epoch of each, in an order that rotates; the ratio is taken within a round. Workers of the plain loader
are persistent and have finished an epoch before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from common import manifest
from laworder.data.augment import Augment
from laworder.data.cache import PairCache
from laworder.data.load import source_hash
from laworder.data.opening import Phantom, open_source
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import from_source
from laworder.runs import generator

BATCH, TARGET, TARGET_RATIO = 16, 2000, 5
Epoch = Callable[[int], Iterator[Any]]


class PlainDataset(Dataset[Any]):
    """What most people write."""

    def __init__(self, files: list[tuple[Path, Path]], size: int, *, augment: bool) -> None:
        import albumentations

        steps = [albumentations.Resize(size, size)]
        if augment:
            steps += [
                albumentations.HorizontalFlip(p=0.5),
                albumentations.VerticalFlip(p=0.5),
                albumentations.Rotate(limit=15, p=1.0),
            ]
        self.files, self.transform = files, albumentations.Compose(steps)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image_file, mask_file = self.files[index]
        image = np.array(Image.open(image_file).convert("RGB"))
        mask = np.array(Image.open(mask_file))
        done = self.transform(image=image, mask=mask)
        return torch.from_numpy(done["image"]).permute(2, 0, 1).contiguous(), torch.from_numpy(done["mask"])[None]


def plain(source: PreparedSource, size: int, *, augment: bool) -> Epoch:
    dataset = PlainDataset([source.files(i) for i in range(len(source))], size, augment=augment)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    return lambda _: iter(loader)


def augmented(cache: PairCache) -> Epoch:
    augment = Augment()

    def epoch(number: int) -> Iterator[Any]:
        for step, batch in enumerate(cache.epoch(number, batch_size=BATCH)):
            images, masks = batch.images.float() / 255, batch.masks.float()
            yield augment(images, masks, generator=generator(0, step=step, stream="augment"))

    return epoch


def timed(epoch: Epoch, number: int, pairs: int) -> float:
    """Pairs a second over one epoch; every pair must come."""
    start, seen = time.perf_counter(), 0
    for batch in epoch(number):
        seen += len(batch[0])
    assert seen == pairs, f"{seen} of {pairs} pairs came"
    return pairs / (time.perf_counter() - start)


def measure(source: PreparedSource, size: int, rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    with PairCache(source, size=size, cache_gb=8.0) as cache:
        rates["cache, first epoch"] = [timed(lambda n: cache.epoch(n, batch_size=BATCH), 0, len(source))]
        contenders: dict[str, Epoch] = {
            "cache": lambda n: cache.epoch(n, batch_size=BATCH),
            "cache + augment on the CPU": augmented(cache),
            "plain": plain(source, size, augment=True),
            "plain, resize only": plain(source, size, augment=False),
        }
        for name in ("plain", "plain, resize only"):
            timed(contenders[name], 0, len(source))
        for number in range(1, rounds + 1):
            names = list(contenders)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                rates.setdefault(name, []).append(timed(contenders[name], number, len(source)))
                print(f"  round {number}: {name:28s} {rates[name][-1]:9.0f} pairs/s", flush=True)
    return rates


def ratios(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Of the cache over each way of the plain loader, round by round."""
    found: dict[str, dict[str, float]] = {}
    for ours, theirs in (("cache", "plain"), ("cache", "plain, resize only"), ("cache + augment on the CPU", "plain")):
        each = [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
        found[f"{ours} / {theirs}"] = {"median": statistics.median(each), "least": min(each), "most": max(each)}
    return found


def markdown(rates: dict[str, list[float]], found: dict[str, dict[str, float]]) -> str:
    rows = ["| | pairs a second, median | from | to |", "| --- | --- | --- | --- |"]
    rows += [f"| {n} | {statistics.median(r):.0f} | {min(r):.0f} | {max(r):.0f} |" for n, r in rates.items()]
    rows += ["", "| ratio within a round | median | from | to |", "| --- | --- | --- | --- |"]
    rows += [f"| {n} | {r['median']:.1f} | {r['least']:.1f} | {r['most']:.1f} |" for n, r in found.items()]
    return "\n".join(rows) + "\n"


def opened(args: argparse.Namespace, scratch: Path) -> PreparedSource:
    if args.tiny:
        drawn = PhantomSource(64, size=128)
        raw = from_source(drawn, name="phantom", licence="drawn", classes=("background", "lesion"), rules={})
        prepare(raw, scratch)
        return PreparedSource(scratch)
    source = open_source(args.data, masks=None, size=args.size, phantom=Phantom())
    if not isinstance(source, PreparedSource):
        sys.exit(f"{args.data} is no prepared data: laworder data prepare … --to {args.data}")
    source.records = source.records[: args.pairs]
    source.names, source.groups = source.names[: args.pairs], source.groups[: args.pairs]
    return source


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", default="prepared/polyps:order", help="prepared data, or FOLDER:POOL")
    parser.add_argument("--out", type=Path, help="write the numbers and their manifest to this JSON file")
    parser.add_argument("--pairs", type=int, default=1000, help="at most so many pairs (default 1000)")
    parser.add_argument("--size", type=int, default=256, help="side in pixels (default 256)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each (default 3)")
    parser.add_argument("--tiny", action="store_true", help="64 drawn pairs at 64²: does it run?")
    args = parser.parse_args()
    if args.tiny:
        args.size, args.rounds = 64, 2
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        source = opened(args, Path(scratch))
        told = manifest(
            args,
            device=torch.device("cpu"),
            seeds=[0],
            rooms=["data"],
            data={"pairs": str(len(source)), "sha256": source_hash(source)},
            settings={
                "batch": BATCH,
                "load_average_at_start": os.getloadavg()[0],
                **{name: version(name) for name in ("pillow", "albumentations", "opencv-python-headless")},
            },
        )
        rates = measure(source, args.size, args.rounds)
    found = ratios(rates)
    for name, each in rates.items():
        print(f"{name:30s} median {statistics.median(each):9.0f} pairs/s, {min(each):.0f} to {max(each):.0f}")
    for name, ratio in found.items():
        print(f"{name}: {ratio['median']:.1f} ({ratio['least']:.1f} to {ratio['most']:.1f})")
    if not args.tiny:
        rate, ratio = statistics.median(rates["cache"]), found["cache / plain"]["median"]
        print(f"target {TARGET} pairs/s: {'met' if rate >= TARGET else 'MISSED'}")
        print(f"target {TARGET_RATIO} times the plain way: {'met' if ratio >= TARGET_RATIO else 'MISSED'}")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"manifest": told, "pairs_per_second": rates, "ratios": found}, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(markdown(rates, found))


if __name__ == "__main__":
    main()
