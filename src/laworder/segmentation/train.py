"""`laworder seg train`: pairs → a run folder with a trained segmenter, its metrics and a report."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

import torch

from laworder.config import to_dict
from laworder.console import note, say
from laworder.data.load import Arrays, load_arrays, source_hash
from laworder.data.opening import PHANTOM, open_source
from laworder.data.pairs import Source
from laworder.data.split_files import names_hash
from laworder.data.splits import Split
from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.runs import Plan, Run, atomic_write, generator, train_loop
from laworder.runs.distributed import Place, from_first, numbers_from_first, processes
from laworder.runs.mirrors import mirrored
from laworder.segmentation.evaluate import Evaluation, evaluate
from laworder.segmentation.feed import FedBatches, fed_batches, open_feed
from laworder.segmentation.optimiser import build_schedule
from laworder.segmentation.parts import parts_of
from laworder.segmentation.report import write_report
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import SegmentTask
from laworder.segmenters import create, list_models

Config = TrainConfig
KIND = "seg train"
MAY_CHANGE = ("out", "device", "compile", "cache_gb", "log")


@dataclass(frozen=True)
class Trained:
    """A finished run: the kept weights and how they did on the held-out pairs."""

    model: Segmenter
    validation: Evaluation
    pairs: Arrays


def plan(config: TrainConfig) -> list[str]:
    """What `run` would do, in words."""
    source = f"{config.phantom.count} drawn pairs" if config.data == PHANTOM else f"the pairs in {config.data}"
    rule = f"hold out {config.held_out:.0%} by {config.split_by} (seed {config.seed})"
    if config.split is not None:
        rule = f"split them as fold {config.fold} of {config.split} says"
    parts = "" if config.accumulate == 1 else f", each in {config.accumulate} parts,"
    ending = "" if config.patience is None else f", end after {config.patience} validations without a better one"
    return [
        f"read {source} at {config.size}×{config.size}, {rule}",
        f"train {config.model} for {config.epochs} epochs of batches of {config.batch}{parts} on "
        f"{pick_device(config.device)}",
        f"validate every {config.validate_every} epochs, keep the best weights by Dice{ending}",
        f"write weights, metrics, per-image scores and report.html to {config.out}",
    ]


def run(config: TrainConfig) -> int:
    """Train, or go on training, and say where the results lie."""
    with processes() as place:
        summary = train(config).validation.summary()
    if place.first:
        low, high = summary.get("dice_interval_95", (float("nan"), float("nan")))
        interval = f"95 % interval {low:.3f} to {high:.3f}"
        say(f"Dice {summary['dice']:.3f} ({interval}) on {summary['images']} held-out images")
        say(f"report: {config.out / 'report.html'}")
    return 0


def train(config: TrainConfig) -> Trained:
    """The whole run: load, split, train, evaluate the best weights, write everything down.

    Under `torchrun` or `accelerate launch` each process computes its share of every batch; the first one writes.
    """
    if config.model not in list_models():
        raise UserError(f"unknown model {config.model!r}{nearest(config.model, list_models())}")
    with processes() as place:
        return _train(config, place, place.device(pick_device(config.device)))


def _train(config: TrainConfig, place: Place, device: torch.device) -> Trained:
    share = share_of(config.batch, config.accumulate, place.world)
    source = open_source(config.data, masks=config.masks, size=config.size, phantom=config.phantom)
    parts = parts_of(config, source)
    with Run(
        config.out,
        config=to_dict(config),
        kind=KIND,
        seeds={"seed": config.seed},
        data=_fingerprints(source, parts, place, device),
        device=device,
        may_change=MAY_CHANGE,
        rank=place.rank,
        world=place.world,
    ) as current:
        if current.finished and place.first:
            note(f"{config.out} is finished; nothing to train")
        feed = open_feed(
            source,
            parts.indices("train", source.names),
            size=config.size,
            channels=config.channels,
            cache_gb=config.cache_gb,
            device=device,
        )
        held_out = load_arrays(source, config.size, config.channels, parts.indices("val", source.names))
        with closing(feed):
            task = SegmentTask(_fresh(config), config, device, names=list(feed.names), place=place)
            trained = _fit(config, current, task, fed_batches(feed, share), held_out)
        if place.first:
            _write_results(config, current, trained)
    return trained


def share_of(batch: int, accumulate: int, world: int) -> int:
    """Images that one process computes at once."""
    if batch % (accumulate * world):
        shares = f"{accumulate} parts" if world == 1 else f"{accumulate} parts in each of {world} processes"
        raise UserError(f"batch: {batch} images cannot be shared out evenly over {shares}; use a multiple of that")
    return batch // (accumulate * world)


def _fingerprints(source: Source, parts: Split, place: Place, device: torch.device) -> dict[str, str]:
    """Hashes of the data and of who trains on them. The first process reads all pairs and tells the others."""
    digest = list(bytes.fromhex(source_hash(source))) if place.first else None
    told = bytes(int(byte) for byte in numbers_from_first(digest, 32, place.world, device))
    return {"pairs": told.hex(), "train": names_hash(parts.train), "held_out": names_hash(parts.val)}


def _fit(config: TrainConfig, current: Run, task: SegmentTask, batches: FedBatches, held_out: Arrays) -> Trained:
    world = task.place.world
    steps = batches.steps(config.epochs, accumulate=config.accumulate, world=world)
    between = config.validate_every * batches.steps(1, accumulate=config.accumulate, world=world)
    schedule = Plan(
        steps=steps,
        seed=config.seed,
        accumulate=config.accumulate,
        clip=config.optimiser.clip,
        schedule=build_schedule(config.optimiser, steps),
        save_every=between,
        eval_every=between,
        best="val_dice",
        patience=config.patience,
    )

    def judge() -> Evaluation:
        return evaluate(task.judged, held_out, batch=config.batch, device=task.device)

    def validate(_: int) -> dict[str, float]:
        summary = judge().summary() if task.place.first else None
        own = None if summary is None else [summary["dice"], summary["iou"]]
        dice, iou = numbers_from_first(own, 2, world, task.device)
        return {"val_dice": dice, "val_iou": iou}

    with mirrored(current, config.log):
        result = train_loop(current, task, batches, schedule, evaluate=validate)
    from_first(result.step, world, task.device)  # nobody reads the best weights before they are written
    best = current.checkpoints.best(only=("modules",))
    for name, module in task.modules.items():
        module.load_state_dict(best.state["modules"][name])
    return Trained(task.judged, judge(), held_out)


def _fresh(config: TrainConfig) -> Segmenter:
    """The untrained model: its weights are a function of the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="weights").initial_seed())
        return create(config.model, in_channels=config.channels, classes=config.classes)


def _write_results(config: TrainConfig, current: Run, trained: Trained) -> None:
    summary = {"model": config.model, "run": current.manifest.kind, "validation": trained.validation.summary()}
    atomic_write(current.folder / "evaluation.json", json.dumps(summary, indent=1) + "\n")
    trained.validation.write_csv(current.folder / "validation.csv")
    write_report(current, trained.validation, trained.pairs, title=f"{config.model} on {config.data}")


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device: {name!r} is none; use cpu, cuda, cuda:1 … or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda was asked for, but this torch sees no CUDA device; use cpu or auto")
    return device
