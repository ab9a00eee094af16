"""What a finished training leaves behind: the kept weights as a model folder, `training.json`, and the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from laworder.diffusion import probe
from laworder.diffusion.averages import put_kept
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import MODEL
from laworder.diffusion.learners import count, merge_lora
from laworder.diffusion.looks import Looks
from laworder.diffusion.report import write_report
from laworder.diffusion.score import Recovery, Score
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.start import starting_backbone
from laworder.diffusion.task import DiffuseTask
from laworder.runs import Run, atomic_write, read_metrics
from laworder.segmentation.judge import json_text

SUMMARY = "training.json"


@dataclass(frozen=True)
class Held:
    """Everything that a training of these settings works with, ready on its device."""

    task: DiffuseTask
    looks: Looks
    score: Score
    card: dict[str, Any]


def card_of(config: TrainConfig, task: DiffuseTask, resize: str) -> dict[str, Any]:
    """What `laworder.json` will say of this training; `diffusion.folders` lists the fields."""
    control = config.stage == "control"
    return {
        "stage": config.stage,
        "objective": config.objective if control else "uniform",
        "objective_settings": config.law.given() if control else {},
        "prompt": config.prompt,
        "class_prompts": list(config.class_prompts),
        "mask_resize": resize,
        "steps": config.steps,
        "seed": config.seed,
        "learned": count(task.weights.values()),
        "sampling": {
            "steps": config.watch.steps,
            "guidance": config.guidance,
            "eta": 0.0,
            "scheduler": "ddim",
            "drops": config.watch.drops,
        },
    }


def write_results(config: TrainConfig, current: Run, held: Held) -> dict[str, Any]:
    """The kept weights as a model folder, what is to be said of them, and the page."""
    best = current.checkpoints.best(only=("modules", "extra"))
    line = next(line for line in read_metrics(current.folder / "metrics.jsonl") if line["step"] == best.step)
    summary = summarise(config, held, best.step, {name: line[name] for name in held.looks.names})
    backbone = whole_backbone(config, held)
    put_kept(backbone, best.state)
    merge_lora(backbone)
    backbone.card = {**held.card, "step": best.step, "metrics": summary["metrics"]}
    backbone.eval().save(current.folder / MODEL)
    atomic_write(current.folder / SUMMARY, json_text(summary))
    write_report(current, config, summary)
    return summary


def whole_backbone(config: TrainConfig, held: Held) -> Backbone:
    """The backbone that was trained; where it is sharded, one like it before its first step, on the CPU."""
    trained = held.task.backbone
    if not held.task.sharded:
        return trained
    backbone = starting_backbone(config)
    backbone.mean, backbone.std = trained.mean.cpu(), trained.std.cpu()
    return backbone


def summarise(config: TrainConfig, held: Held, step: int, metrics: dict[str, float]) -> dict[str, Any]:
    """The result: which step was kept, by what, and how it did. A metric that is no finite number is None."""
    fixed = held.looks.pairs
    told: dict[str, Any] = {
        "step": step,
        "steps": config.steps,
        "best": held.score.best,
        "mode": held.score.mode,
        "chosen_by": held.score.words,
        "validation": f"{len(fixed.names)} fixed validation masks",
        "metrics": {name: value if math.isfinite(value) else None for name, value in metrics.items()},
    }
    if config.stage == "control":
        told["verdict"] = probe.verdict(metrics)
    else:
        told["validation"] = f"{len(fixed.names)} drawn images"
    if isinstance(held.score, Recovery):
        told["judge"] = held.score.judge
        told["ceiling"] = held.score.ceiling
    return told
