"""Pairs → a run folder with a trained segmenter, its metrics and a report."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import torch

from laworder.config import to_dict
from laworder.console import note
from laworder.data.load import Arrays, load_arrays, source_hash
from laworder.data.opening import open_source
from laworder.data.pairs import Source
from laworder.data.split_files import names_hash
from laworder.data.splits import Split
from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.runs import Plan, Run, atomic_write, generator, train_loop
from laworder.runs.distributed import Place, from_first, numbers_from_first, processes
from laworder.runs.mirrors import mirrored
from laworder.segmentation.evaluate import Evaluation, count_overlap, evaluate
from laworder.segmentation.feed import FedBatches, check_classes, fed_batches, open_feed
from laworder.segmentation.judge import json_text, judge
from laworder.segmentation.optimiser import build_schedule
from laworder.segmentation.parts import parts_of
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import SegmentTask
from laworder.segmentation.train_report import write_report
from laworder.segmenters import create, list_models

KIND = "seg train"
"""The kind of these runs, as their manifests say it."""
MAY_CHANGE = ("out", "device", "compile", "cache_gb", "log")


@dataclass(frozen=True)
class Trained:
    """A finished run: the kept weights and how they did on the held-out pairs."""

    model: Segmenter
    validation: Evaluation
    pairs: Arrays


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
    digest = source_digest(source, place, device)
    with run_of(config, parts, digest, device=device, place=place) as current:
        if current.finished and place.first:
            note(f"{config.out} is finished; nothing to train")
        feed = open_feed(
            source,
            parts.indices("train", source.names),
            size=config.size,
            channels=config.channels,
            classes=config.classes,
            cache_gb=config.cache_gb,
            device=device,
        )
        held_out = load_arrays(source, config.size, config.channels, parts.indices("val", source.names))
        check_classes(held_out.masks, held_out.names, config.classes)
        with closing(feed):
            task = SegmentTask(fresh(config), config, device, names=list(feed.names), place=place)
            batches = fed_batches(feed, share)
            validate = Validation(task, held_out, batch=config.batch)
            with mirrored(current, config.log):
                result = train_loop(current, task, batches, plan_of(config, batches, place.world), evaluate=validate)
        from_first(result.step, place.world, device)  # nobody reads the best weights before they are written
        return conclude(config, current, task, held_out)


def share_of(batch: int, accumulate: int, world: int) -> int:
    """Images that one process computes at once."""
    if batch % (accumulate * world):
        parts = f"{accumulate} parts" if accumulate > 1 else ""
        shares = " in each of ".join(part for part in (parts, f"{world} processes" if world > 1 else "") if part)
        raise UserError(f"batch: {batch} images cannot be shared out evenly over {shares}; use a multiple of that")
    return batch // (accumulate * world)


def source_digest(source: Source, place: Place, device: torch.device) -> str:
    """Hash of all pairs. The first process reads them and tells the others."""
    digest = list(bytes.fromhex(source_hash(source))) if place.first else None
    return bytes(int(byte) for byte in numbers_from_first(digest, 32, place.world, device)).hex()


def run_of(config: TrainConfig, parts: Split, digest: str, *, device: torch.device, place: Place) -> Run:
    """The run folder of these settings: the same data and the same people in training, or none."""
    return Run(
        config.out,
        config=to_dict(config),
        kind=KIND,
        seeds={"seed": config.seed},
        data={"pairs": digest, "train": names_hash(parts.train), "held_out": names_hash(parts.val)},
        device=device,
        may_change=MAY_CHANGE,
        rank=place.rank,
        world=place.world,
    )


def plan_of(config: TrainConfig, batches: FedBatches, world: int) -> Plan:
    """How long, how often, how fast. Steps are updates, however many processes and parts share one."""
    steps = batches.steps(config.epochs, accumulate=config.accumulate, world=world)
    between = config.validate_every * batches.steps(1, accumulate=config.accumulate, world=world)
    return Plan(
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


class Validation:
    """Dice and IoU of the judged weights on the held-out pairs, which stay on the device. The first process judges."""

    def __init__(self, task: SegmentTask, held_out: Arrays, *, batch: int) -> None:
        self.task, self.batch = task, batch
        self.images, self.masks = held_out.images, held_out.masks
        if task.place.first:
            self.images, self.masks = self.images.to(task.device), self.masks.to(task.device)

    def __call__(self, step: int) -> dict[str, float]:  # noqa: ARG002
        own = None
        if self.task.place.first:
            counts = count_overlap(self.task.judged, self.images, self.masks, batch=self.batch)
            own = [float(counts.dice().mean()), float(counts.iou().mean())]
        dice, iou = numbers_from_first(own, 2, self.task.place.world, self.task.device)
        return {"val_dice": dice, "val_iou": iou}


def conclude(config: TrainConfig, current: Run, task: SegmentTask, held_out: Arrays) -> Trained:
    """Judge the best weights, and let the first process write down how they did."""
    best = current.checkpoints.best(only=("modules",))
    for name, module in task.modules.items():
        module.load_state_dict(best.state["modules"][name])
    trained = Trained(task.judged, evaluate(task.judged, held_out, batch=config.batch, device=task.device), held_out)
    if task.place.first:
        _write_results(config, current, trained)
    return trained


def fresh(config: TrainConfig) -> Segmenter:
    """The untrained model: its weights are a function of the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="weights").initial_seed())
        return create(config.model, in_channels=config.channels, classes=config.classes)


def _write_results(config: TrainConfig, current: Run, trained: Trained) -> None:
    validation, pairs = trained.validation, trained.pairs
    measures = judge(validation.probability, pairs.masks, names=pairs.names).summary()
    summary = {
        "model": config.model,
        "run": current.manifest.kind,
        "validation": validation.summary(),
        "measures": measures,
    }
    atomic_write(current.folder / "evaluation.json", json_text(summary))
    validation.write_csv(current.folder / "validation.csv")
    write_report(current, validation, measures, pairs, title=f"{config.model} on {config.data}")


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
