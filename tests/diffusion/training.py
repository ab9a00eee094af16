"""The smallest trainings that tests run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from laworder.config import build
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.train import train
from laworder.runs import Checkpoints

SMALL = {
    "data": "phantom",
    "backbone": "tiny",
    "device": "cpu",
    "size": 32,
    "phantom.count": 16,
    "held_out": 0.3,
    "batch": 4,
    "steps": 4,
    "watch.every": 2,
    "watch.images": 2,
    "watch.validation": 3,
    "watch.steps": 2,
    "log": "none",
}


def settings(**more: Any) -> TrainConfig:
    """A config of seconds; `watch__every` is `watch.every`."""
    return build(TrainConfig, {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}})


def trained_prior(folder: Path, **more: Any) -> Path:
    """A run of stage prior."""
    train(settings(out=folder, stage="prior", **more))
    return folder


def kept(folder: Path) -> dict[str, torch.Tensor]:
    """The learnt weights of a run's last checkpoint."""
    found = Checkpoints(folder / "checkpoints").latest()
    assert found is not None
    return found.state["modules"]["weights"]
