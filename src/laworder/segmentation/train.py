"""`laworder seg train`: pairs → a run folder with a trained segmenter, its metrics and a report."""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

from laworder.config import to_dict
from laworder.console import note, say
from laworder.data.load import Arrays, load_arrays, source_hash
from laworder.data.opening import PHANTOM, open_source
from laworder.data.split_files import names_hash
from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.runs import Batches, Plan, Run, atomic_write, cosine, generator, train_loop
from laworder.segmentation.evaluate import Evaluation, evaluate
from laworder.segmentation.parts import parts_of
from laworder.segmentation.report import write_report
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import SegmentTask
from laworder.segmenters import create, list_models

Config = TrainConfig
KIND = "seg train"
MAY_CHANGE = ("out", "device", "compile")


@dataclass(frozen=True)
class Trained:
    """A finished run: the kept weights and how they did on the held-out pairs."""

    model: Segmenter
    validation: Evaluation
    pairs: Arrays


class _Positions(Dataset[int]):
    """The arrays lie on the device: a loader has to hand out positions only."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> int:
        return position


def plan(config: TrainConfig) -> list[str]:
    """What `run` would do, in words."""
    source = f"{config.phantom.count} drawn pairs" if config.data == PHANTOM else f"the pairs in {config.data}"
    rule = f"hold out {config.held_out:.0%} by {config.split_by} (seed {config.seed})"
    if config.split is not None:
        rule = f"split them as fold {config.fold} of {config.split} says"
    return [
        f"read {source} at {config.size}×{config.size}, {rule}",
        f"train {config.model} for {config.epochs} epochs of batches of {config.batch} on {pick_device(config.device)}",
        f"validate every {config.validate_every} epochs, keep the best weights by Dice",
        f"write weights, metrics, per-image scores and report.html to {config.out}",
    ]


def run(config: TrainConfig) -> int:
    """Train, or go on training, and say where the results lie."""
    trained = train(config)
    summary = trained.validation.summary()
    low, high = summary.get("dice_interval_95", (float("nan"), float("nan")))
    say(f"Dice {summary['dice']:.3f} (95 % interval {low:.3f} to {high:.3f}) on {summary['images']} held-out images")
    say(f"report: {config.out / 'report.html'}")
    return 0


def train(config: TrainConfig) -> Trained:
    """The whole run: load, split, train, evaluate the best weights, write everything down."""
    if config.model not in list_models():
        raise UserError(f"unknown model {config.model!r}{nearest(config.model, list_models())}")
    device = pick_device(config.device)
    source = open_source(config.data, masks=config.masks, size=config.size, phantom=config.phantom)
    parts = parts_of(config, source)
    digest = source_hash(source)
    with Run(
        config.out,
        config=to_dict(config),
        kind=KIND,
        seeds={"seed": config.seed},
        data={"pairs": digest, "train": names_hash(parts.train), "held_out": names_hash(parts.val)},
        device=device,
        may_change=MAY_CHANGE,
    ) as current:
        if current.finished:
            note(f"{config.out} is finished; nothing to train")
        train_pairs, held_out = (
            load_arrays(source, config.size, config.channels, parts.indices(part, source.names))
            for part in ("train", "val")
        )
        trained = _fit(config, current, train_pairs, held_out, device)
        _write_results(config, current, trained)
    return trained


def _fit(config: TrainConfig, current: Run, pairs: Arrays, held_out: Arrays, device: torch.device) -> Trained:
    task = SegmentTask(_fresh(config), pairs, config, device)
    batches = Batches(dataset=_Positions(len(pairs.names)), batch_size=config.batch)
    steps, epoch = batches.steps(config.epochs), max(1, batches.steps(1))
    floor = min(1.0, config.optimiser.floor / config.optimiser.lr)
    schedule = Plan(
        steps=steps,
        seed=config.seed,
        clip=config.optimiser.clip,
        schedule=cosine(steps, floor=floor, warmup=config.optimiser.warmup),
        save_every=epoch * config.validate_every,
        eval_every=epoch * config.validate_every,
        best="val_dice",
    )

    def validate(_: int) -> dict[str, float]:
        summary = evaluate(task.judged, held_out, batch=config.batch, device=device).summary()
        return {"val_dice": summary["dice"], "val_iou": summary["iou"]}

    train_loop(current, task, batches, schedule, evaluate=validate)
    best = current.checkpoints.best(only=("modules",))
    for name, module in task.modules.items():
        module.load_state_dict(best.state["modules"][name])
    return Trained(task.judged, evaluate(task.judged, held_out, batch=config.batch, device=device), held_out)


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
