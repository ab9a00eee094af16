"""What a segmenter finds in the best, the median and the worst picture of an evaluation: nobody picks them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from laworder.config import group, option
from laworder.console import say
from laworder.data.load import Arrays, load_arrays
from laworder.data.opening import Phantom, open_source
from laworder.errors import UserError
from laworder.runs import atomic_write, sha256_file
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.pictures import save
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.report import rgb
from laworder.segmentation.train import pick_device

KIND = "cases"
RESULT = "cases.json"
SCORES = "images.csv"
IMAGE, TRUTH, PREDICTION = "image", "truth", "prediction"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Draw the best, the median and the worst picture of an evaluation by Dice, of those with a lesion."""

    model: str = option(meaning="run folder of the segmenter")
    evaluation: Path = option(meaning="folder that `seg evaluate` wrote about it")
    data: str = option(meaning="the data that it was judged on: folder of images and masks, or the word phantom")
    out: Path = option(meaning=f"folder for {RESULT} and the pictures")
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


@dataclass(frozen=True)
class Scored:
    """A picture that was judged, and its Dice."""

    name: str
    dice: float


@dataclass(frozen=True)
class Case:
    """A picture, its mask and what was found in it. which: best, median or worst; among: so many were judged."""

    which: str
    among: int
    name: str
    dice: float
    image: UInt8[np.ndarray, "h w 3"]
    truth: Bool[np.ndarray, "h w"]
    prediction: Bool[np.ndarray, "h w"]


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"draw the best, the median and the worst picture of {config.evaluation} to {config.out}"]


def run(config: Config) -> None:
    """Choose by the scores, predict, and write pictures and `cases.json`."""
    device = pick_device(config.device)
    predictor = Predictor(load_segmenter(config.model, device=device), device)
    judged = scores(config.evaluation / SCORES)
    chosen = picked(judged)
    source = open_source(config.data, masks=None, size=predictor.size, phantom=config.phantom)
    at = {name: index for index, name in enumerate(source.names)}
    strangers = [one.name for one in chosen.values() if one.name not in at]
    if strangers:
        raise UserError(f"data: {config.data} holds no {strangers[0]!r}, which {config.evaluation} is about")
    pairs = load_arrays(source, predictor.size, predictor.channels, [at[one.name] for one in chosen.values()])
    found = (predictor.lesion(pairs, batch=len(chosen)) > predictor.model.preprocessing.threshold).numpy()
    listed = [
        {"which": which, "among": len(judged), **vars(one), "files": _write(config.out, which, pairs, found, index)}
        for index, (which, one) in enumerate(chosen.items())
    ]
    atomic_write(config.out / RESULT, json.dumps({"model": config.model, "cases": listed}, indent=1) + "\n")
    say("; ".join(f"{which}: {one.name}, Dice {one.dice:.3f}" for which, one in chosen.items()))


def scores(path: Path) -> list[Scored]:
    """The pictures with a lesion that an evaluation judged. Those without one say 1 or 0, and show nothing."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        found = [Scored(row["name"], float(row["dice"])) for row in rows if float(row["lesion_fraction"]) > 0]
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: not the scores of `seg evaluate` ({error}); evaluate anew") from error
    if not found:
        raise UserError(f"{path}: no picture with a lesion was judged; give other data")
    return found


def picked(found: Sequence[Scored]) -> dict[str, Scored]:
    """Best, median and worst by Dice; of equal ones the first by name, of an even number the better median."""
    order = sorted(found, key=lambda one: (-one.dice, one.name))
    worst = min(found, key=lambda one: (one.dice, one.name))
    return {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": worst}


def _write(
    out: Path, which: str, pairs: Arrays, found: Bool[np.ndarray, "n h w"], index: int
) -> dict[str, dict[str, str]]:
    pictures = {
        IMAGE: rgb(pairs.images[index]),
        TRUTH: (pairs.masks[index, 0].numpy() > 0).astype(np.uint8) * 255,
        PREDICTION: found[index].astype(np.uint8) * 255,
    }
    written: dict[str, dict[str, str]] = {}
    for part, picture in pictures.items():
        path = out / f"{which}-{part}.png"
        save(Image.fromarray(picture), path)
        written[part] = {"file": path.name, "sha256": sha256_file(path)}
    return written


def read_cases(folder: Path, content: Mapping[str, Any]) -> list[Case]:
    """The pictures that a `cases.json` lists, refused where they are not what was written."""
    return [_read(folder, one) for one in content["cases"]]


def _read(folder: Path, listed: Mapping[str, Any]) -> Case:
    found: dict[str, np.ndarray] = {}
    for part, file in listed["files"].items():
        path = folder / file["file"]
        if not path.is_file() or sha256_file(path) != file["sha256"]:
            raise UserError(f"{path} is missing or was changed; remove {folder.parent} and run it again")
        with Image.open(path) as picture:
            found[part] = np.array(picture)
    return Case(
        **{key: listed[key] for key in ("which", "among", "name", "dice")},
        image=found[IMAGE],
        truth=found[TRUTH] > 0,
        prediction=found[PREDICTION] > 0,
    )
