"""The segmenter of a downstream study: any registered one, or nnU-Net v2, behind `scores(cell)`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from laworder.config import build
from laworder.data.pairs import Part, Source
from laworder.data.prepared import PreparedSource
from laworder.data.split_files import write_splits
from laworder.evaluation.doses import REAL, Cell
from laworder.evaluation.judging import NnUNetJudge, Scores, lesion_of, open_judge, scored
from laworder.metrics.overlap import count
from laworder.presets import read_preset
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.train import train
from laworder.segmenters.nnunet_driver import COLOUR, GRAY, NnUNet


class Trainer(Protocol):
    def scores(self, cell: Cell) -> Scores:
        """Train the cell, or go on with it, and score it on the test pairs, or on its real validation pairs."""
        ...


@dataclass(frozen=True)
class RegisteredTrainer:
    """A registered segmenter, through `seg train`.

    recipe:        preset of `seg train`
    equal_updates: hold the number of optimiser updates, not that of epochs, where synthetic images are added
    settings:      what differs from the recipe, by dotted path
    """

    model: str
    data: Path
    out: Path
    recipe: str
    settings: dict[str, object]
    device: torch.device
    equal_updates: bool = True
    test: Source | None = None

    def scores(self, cell: Cell) -> Scores:
        folder = self.out / cell.name
        folder.mkdir(parents=True, exist_ok=True)
        write_splits(folder / "split.json", [cell.split])
        train(self.config(cell))
        judge = open_judge(str(folder / "run"), device=self.device)
        return scored(judge, _judged_on(PreparedSource(self.data), cell, self.test))

    def config(self, cell: Cell) -> TrainConfig:
        """The training of a cell."""
        folder = self.out / cell.name
        values = {
            **read_preset("seg train", self.recipe),
            "log": "none",
            **self.settings,
            "data": str(self.data),
            "out": folder / "run",
            "model": self.model,
            "seed": cell.seed,
            "split": folder / "split.json",
            "device": str(self.device),
        }
        config = build(TrainConfig, values)
        if not self.equal_updates or cell.dose == 0:
            return config
        share = (len(cell.split.train) - cell.dose) / len(cell.split.train)
        return build(TrainConfig, {**values, "epochs": max(1, math.ceil(config.epochs * share))})


@dataclass(frozen=True)
class NnUNetTrainer:
    """nnU-Net v2 through its own plan, train and predict: each cell is one of its folds.

    It is planned once, on all pairs, so that every cell has the same network and the same preprocessing.
    """

    driver: NnUNet
    data: Path
    cells: list[Cell]
    test: Source | None = None

    def scores(self, cell: Cell) -> Scores:
        source = PreparedSource(self.data)
        names = self._prepared(source)
        fold = [one.name for one in self.cells].index(cell.name)
        folder = self.driver.train(fold)
        if self.test is not None:
            judge = NnUNetJudge(self.driver.model, self.driver.device, self.driver.python, folds=(str(fold),))
            return scored(judge, self.test)
        found = [count(*_masks(folder / "validation", source, names, name)) for name in cell.split.val]
        columns = [torch.cat([getattr(one, key)() for one in found]) for key in ("dice", "iou", "lesion_fraction")]
        return Scores([name.removeprefix(REAL) for name in cell.split.val], *columns)

    def _prepared(self, source: PreparedSource) -> dict[str, str]:
        """Raw data, plan and folds; the pair's name → the case's, which nnU-Net wants plain."""
        names = {name: f"case{i:06}" for i, name in enumerate(source.names)}
        if not (self.driver.raw / "dataset.json").is_file():
            first = source.read(0).image
            with self.driver.dataset(GRAY if first.shape[2] == 1 else COLOUR) as dataset:
                for i, name in enumerate(source.names):
                    pair = source.read(i)
                    dataset.add(names[name], pair.image, pair.mask)
        splits = [
            {"train": [names[n] for n in cell.split.train], "val": [names[n] for n in cell.split.val]}
            for cell in self.cells
        ]
        self.driver.plan(splits)
        return names


def _masks(folder: Path, source: PreparedSource, names: dict[str, str], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What nnU-Net found on a validation pair, and the truth, each as one boolean picture."""
    found = lesion_of(folder / f"{names[name]}.png")
    true = source.read(source.names.index(name)).mask > 0
    return torch.from_numpy(found)[None], torch.from_numpy(true)[None]


def _judged_on(source: PreparedSource, cell: Cell, test: Source | None) -> Source:
    return test if test is not None else Part(source, cell.split.indices("val", source.names))
