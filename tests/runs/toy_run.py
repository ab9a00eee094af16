"""A training as small as possible that has everything that can go wrong on resumption.

Running statistics, dropout, noise from a generator, augmentation from three global generators, an optimiser with
state, a moving average of the weights, a schedule, evaluation, a best checkpoint.

    python toy_run.py FOLDER ACCUMULATE WORKERS [--slow]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from laworder.runs import Batches, Checkpoints, Plan, Result, Run, Task, cosine, generator, train_loop

STEPS, SAVE_EVERY, ITEMS = 24, 4, 13


class Augmented(Dataset[dict[str, Any]]):
    """Items that draw from every global generator, as careless augmentation does."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, i: int) -> dict[str, Any]:
        x = torch.full((2, 6, 6), i / ITEMS) + 0.1 * torch.randn(2, 6, 6)
        x = x + float(np.random.rand()) + random.random()
        return {"x": x, "y": torch.tensor(float(i % 2)), "index": torch.tensor(i)}


class Toy(Task):
    def __init__(self, *, spoil: int | None = None, where: str = "loss", pause: float = 0.0) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(
                nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 1)
            )
        self.ema = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
        self.ema.load_state_dict({k.replace("5.", "4."): v for k, v in self.net.state_dict().items()})
        self.spoil, self.where, self.pause, self.seen = spoil, where, pause, 0
        super().__init__(
            modules={"net": self.net, "ema": self.ema},
            optimizers={"adam": torch.optim.AdamW(self.net.parameters(), lr=1e-2)},
        )

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        noise = torch.randn(batch["x"].shape, generator=generator(3, step=step, stream=f"noise/{micro}"))
        logits = self.net(batch["x"] + 0.1 * noise)[:, 0]
        bce = nn.functional.binary_cross_entropy_with_logits(logits, batch["y"])
        if step == self.spoil and self.where == "loss":
            bce = bce * float("nan")
        if step == self.spoil and self.where == "gradient":
            bce = bce + (logits - logits.detach()).abs().sqrt().sum()  # 0, with an infinite slope
        return bce, {"bce": bce, "mean": logits.mean(), "half": 0.5}

    def after_step(self, step: int) -> None:
        with torch.no_grad():
            for mean, now in zip(self.ema.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(now, 0.1)
        self.seen = step
        time.sleep(self.pause)

    def extra_state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class SlowFile:
    """An unbuffered file on a slow disk."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file, self._seconds = path.open("wb", buffering=0), seconds

    def __enter__(self) -> SlowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        time.sleep(self._seconds)
        return self._file.write(bytes(data[:2000]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SlowCheckpoints(Checkpoints):
    def open_file(self, path: Path) -> Any:
        return SlowFile(path, 0.0005)


def settings(**changed: Any) -> dict[str, Any]:
    config = {"steps": STEPS, "accumulate": 1, "workers": 0, "save_every": SAVE_EVERY, "rate": 1e-2}
    return {**config, **changed}


def enter(folder: str | Path, config: dict[str, Any], **options: Any) -> Run:
    return Run(folder, config=config, kind="toy", seeds={"seed": 5}, may_change=("workers",), **options)


def batches(config: Mapping[str, Any], **options: Any) -> Batches:
    chosen = {"workers": config["workers"], "start": "fork", **options}
    return Batches(dataset=Augmented(), batch_size=3, **chosen)


def plan(config: Mapping[str, Any], **options: Any) -> Plan:
    return Plan(
        **{
            "steps": config["steps"],
            "seed": 5,
            "accumulate": config["accumulate"],
            "clip": 1.0,
            "schedule": cosine(STEPS, floor=0.1, warmup=3),
            "save_every": config["save_every"],
            **options,
        }
    )


def train(run: Run, task: Toy, config: Mapping[str, Any], **options: Any) -> Result:
    def evaluate(step: int) -> dict[str, float]:  # noqa: ARG001
        task.net.eval()
        with torch.no_grad():
            return {"val": float(task.net(torch.randn(4, 2, 6, 6)).mean())}

    chosen = plan(config, **{"eval_every": 6, "best": "val", **options})
    return train_loop(run, task, batches(config), chosen, evaluate=evaluate)


def main(folder: str, accumulate: int, workers: int, slow: bool = False) -> None:
    torch.set_num_threads(1)
    config = settings(accumulate=accumulate, workers=workers)
    with enter(folder, config) as run:
        if slow:
            run.checkpoints = SlowCheckpoints(run.checkpoints.folder)
        train(run, Toy(pause=0.004 if slow else 0.0), config)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "--slow" in sys.argv)
