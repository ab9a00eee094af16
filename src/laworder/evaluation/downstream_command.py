"""`laworder evaluate downstream`: is a segmenter better when synthetic images are added to the real ones?"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from laworder.config import option, to_dict
from laworder.console import note, say
from laworder.data.load import source_hash
from laworder.data.pairs import Source
from laworder.errors import UserError, nearest
from laworder.evaluation.doses import Cell, cells, merged
from laworder.evaluation.downstream_report import as_markdown, as_page, differences, in_words, published_cells
from laworder.evaluation.gains import by_dose
from laworder.evaluation.inputs import check_places, open_pairs
from laworder.evaluation.judging import Scores
from laworder.evaluation.leakage import shared_images
from laworder.evaluation.trainers import NnUNetTrainer, RegisteredTrainer, Trainer
from laworder.runs import Run, atomic_write
from laworder.segmentation.evaluate_command import json_text
from laworder.segmentation.train import pick_device
from laworder.segmenters import list_models
from laworder.segmenters.nnunet_driver import NnUNet

KIND = "evaluate downstream"
NNUNET = "nnunet"
DOSES = (0, 250, 500, 1000, 1450)
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Train the same segmenter on real pairs and on real pairs with synthetic ones added, in nested doses, with several
    seeds, always validated on real pairs, and test the differences pairwise. The same command goes on where a killed
    one stopped. Writes downstream.json, table.md and downstream.html."""

    real: str = option(meaning="the real pairs: a folder, or FOLDER:POOL", positional=True)
    synthetic: str = option(meaning="the synthetic pairs", positional=True)
    out: Path = option(Path("downstream"), "folder of the study")
    model: str = option("order_01", "a registered segmenter, or nnunet for nnU-Net v2")
    seeds: tuple[int, ...] = option(SEEDS, "of split, initial weights and order", minimum=0)
    doses: tuple[int, ...] = option(DOSES, "synthetic images added; 0 is always among them", minimum=0)
    test: str | None = option(None, "real pairs to score on; none: each seed's own validation part")
    held_out: float = option(0.1, "share of the real pairs kept for validation", above=0, maximum=0.9)
    split_by: Literal["group", "image"] = option("group", "what must not cross the split; the paper splits by image")
    keep_validation_masks: bool = option(False, "also train on synthetic images of masks that are validated on")
    recipe: Literal["best", "paper"] = option("best", "how a registered segmenter is trained")
    equal_updates: bool = option(True, "as many optimiser updates at every dose; off: as many epochs")
    size: int | None = option(None, "side of the images; none: the recipe's", unit="pixels", minimum=32)
    epochs: int | None = option(None, "epochs on real pairs alone; none: the recipe's, or nnU-Net's", minimum=1)
    iterations: int = option(250, "updates in an epoch of nnU-Net", minimum=1)
    batch: int | None = option(None, "images an update; none: the recipe's", minimum=1)
    dataset: Literal["polyps", "kits19", "brisc"] | None = option(None, "the paper's data set to print numbers of")
    nnunet: Path | None = option(None, "Python that has nnunetv2, where this one has not")
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    doses = sorted({0, *config.doses})
    where = config.test or "the real validation pairs of each seed"
    return [
        f"train {config.model} on {config.real} with {', '.join(map(str, doses))} images of {config.synthetic} added",
        f"{len(config.seeds)} seeds × {len(doses)} doses = {len(config.seeds) * len(doses)} trainings "
        f"on {pick_device(config.device)}; those that are done are kept",
        f"score on {where}; compare each dose with none, pairwise",
        f"write downstream.json, table.md and downstream.html to {config.out}",
    ]


def run(config: Config) -> int:
    """The whole study."""
    if config.model != NNUNET and config.model not in list_models():
        raise UserError(f"model: unknown {config.model!r}{nearest(config.model, [*list_models(), NNUNET])}")
    sources = _sources(config)
    device = pick_device(config.device)
    digests = {role: source_hash(source) for role, source in sources.items()}
    settings = to_dict(config)
    may_change = ("out", "device", "nnunet", "dataset", "real", "synthetic", "test")
    seeds = {f"seed {k}": k for k in config.seeds}
    with Run(
        config.out, config=settings, kind=KIND, seeds=seeds, data=digests, device=device, may_change=may_change
    ) as current:
        study = cells(
            sources["real"],
            sources["synthetic"],
            seeds=config.seeds,
            doses=config.doses,
            held_out=config.held_out,
            split_by=config.split_by,
            keep_validation_masks=config.keep_validation_masks,
        )
        _say_capped(study)
        data = merged(sources["real"], sources["synthetic"], config.out / "data")
        trainer = _trainer(config, data, study, device, sources.get("test"))
        found = {cell.name: _scores(config.out / "scores", cell, trainer) for cell in study}
        records = by_dose(study, found)
        _write(config, records, settings, asdict(current.manifest), _seen_in_training(sources))
    return 0


def _sources(config: Config) -> dict[str, Source]:
    named = {"real": config.real, "synthetic": config.synthetic, "test": config.test}
    places = {role: typed for role, typed in named.items() if typed is not None}
    check_places(places)
    return {role: open_pairs(role, typed) for role, typed in places.items()}


def _seen_in_training(sources: dict[str, Source]) -> list[str]:
    """A sentence where images that are scored on stand among those that are trained on."""
    found = {role: shared_images(sources["test"], sources[role]) for role in ("real", "synthetic") if "test" in sources}
    return [
        f"{count} of the {len(sources['test'])} test images are among the {role} images that are trained on, pixel for "
        "pixel: scores are too high by what was learnt by heart."
        for role, count in found.items()
        if count
    ]


def _say_capped(study: list[Cell]) -> None:
    short = [cell for cell in study if cell.dose < cell.asked]
    if short:
        lowest, highest = min(c.dose for c in short), max(c.dose for c in short)
        have = str(lowest) if lowest == highest else f"{lowest} to {highest}"
        note(f"mind: {short[0].asked} synthetic images were asked for, {have} are there for a seed")


def _trainer(config: Config, data: Path, study: list[Cell], device: torch.device, test: Source | None) -> Trainer:
    if config.model == NNUNET:
        driver = NnUNet(
            config.out / "nnunet",
            python=config.nnunet,
            device=device.type,
            epochs=config.epochs,
            iterations=config.iterations,
        )
        return NnUNetTrainer(driver, data, study, test)
    typed = {"size": config.size, "epochs": config.epochs, "batch": config.batch}
    return RegisteredTrainer(
        model=config.model,
        data=data,
        out=config.out / "cells",
        recipe=config.recipe,
        settings={key: value for key, value in typed.items() if value is not None},
        device=device,
        equal_updates=config.equal_updates,
        test=test,
    )


def _scores(folder: Path, cell: Cell, trainer: Trainer) -> Scores:
    """A cell's scores, from its file where it is done."""
    path = folder / f"{cell.name}.csv"
    if path.is_file():
        return _read(path)
    scores = trainer.scores(cell)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "dice", "iou", "lesion_fraction"])
    columns = (scores.dice.tolist(), scores.iou.tolist(), scores.fraction.tolist())
    writer.writerows(zip(scores.names, *columns, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.getvalue())
    note(f"{cell.name}: Dice {float(scores.dice.mean()):.3f}")
    return _read(path)


def _read(path: Path) -> Scores:
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    keys = ("dice", "iou", "lesion_fraction")
    columns = (torch.tensor([float(line[key]) for line in lines], dtype=torch.float64) for key in keys)
    dice, iou, fraction = columns
    return Scores([line["name"] for line in lines], dice, iou, fraction)


def _write(
    config: Config,
    records: list[dict[str, Any]],
    settings: dict[str, Any],
    manifest: dict[str, Any],
    remarks: list[str],
) -> None:
    whole = {
        "format": 1,
        "doses": records,
        "remarks": remarks,
        "published": published_cells(config.dataset),
        "protocol_differences": differences(settings, config.dataset),
        "manifest": manifest,
    }
    atomic_write(config.out / "downstream.json", json_text(whole))
    atomic_write(config.out / "table.md", as_markdown(records, settings, remarks))
    atomic_write(config.out / "downstream.html", as_page(records, settings, manifest, remarks).html())
    for text in remarks:
        note(f"mind: {text}")
    for record in records:
        gain = record["dice"].get("gain")
        more = "" if gain is None else f", {gain['difference']:+.3f} against none" + in_words(gain.get("over_seeds"))
        over = f"over {len(record['seeds'])} seeds"
        say(f"{record['asked']} synthetic images: Dice {record['dice']['mean']:.3f} {over}{more}")
    say(f"report: {config.out / 'downstream.html'}")
