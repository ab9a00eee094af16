"""`laworder seg train`: one seed, or several at once."""

from __future__ import annotations

from typing import Any

from laworder.console import say
from laworder.data.opening import PHANTOM
from laworder.runs.distributed import processes
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.together.members import members_of
from laworder.segmentation.together.train import train_together
from laworder.segmentation.train import Trained, pick_device, train

Config = TrainConfig


def plan(config: TrainConfig) -> list[str]:
    """What `run` would do, in words."""
    source = f"{config.phantom.count} drawn pairs" if config.data == PHANTOM else f"the pairs in {config.data}"
    rule = f"hold out {config.held_out:.0%} by {config.split_by} (seed {config.seed})"
    if config.split is not None:
        rule = f"split them as fold {config.fold} of {config.split} says"
    elif config.seeds is not None:
        rule = f"hold out {config.held_out:.0%} by {config.split_by}, anew for each seed"
    parts = "" if config.accumulate == 1 else f", each in {config.accumulate} parts,"
    ending = "" if config.patience is None else f", end after {config.patience} validations without a better one"
    folders = [member.out for member in members_of(config)]
    times = "" if config.seeds is None else f" {len(folders)} times at once"
    return [
        f"read {source} at {config.size}×{config.size}, {rule}",
        f"train {config.model}{times} for {config.epochs} epochs of batches of {config.batch}{parts} on "
        f"{pick_device(config.device)}",
        f"validate every {config.validate_every} epochs, keep the best weights by Dice{ending}",
        f"write weights, metrics, per-image scores and report.html to {', '.join(map(str, folders))}",
    ]


def run(config: TrainConfig) -> int:
    """Train, or go on training, and say where the results lie."""
    if config.seeds is not None:
        for member, trained in train_together(config).items():
            say(f"seed {member.seed}: {_sentence(trained)}; report: {member.out / 'report.html'}")
        return 0
    with processes() as place:
        trained = train(config)
    if place.first:
        say(_sentence(trained))
        say(f"report: {config.out / 'report.html'}")
    return 0


def _sentence(trained: Trained) -> str:
    summary: dict[str, Any] = trained.validation.summary()
    low, high = summary.get("dice_interval_95", (float("nan"), float("nan")))
    return f"Dice {summary['dice']:.3f} (95 % interval {low:.3f} to {high:.3f}) on {summary['images']} held-out images"
