"""A study whose runs left results without having run: numbers and pictures to test pages on in seconds."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from laworder.config import build
from laworder.data.prepare import prepare
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import from_source
from laworder.paper.identity import Resolved
from laworder.paper.store import begin, finish, order_of
from laworder.paper.study import Options, Study
from laworder.paper.wanted import wanted
from laworder.runs import sha256_file

BINS = ((0.0, 0.01), (0.01, 0.05), (0.05, 1.0))


def study(root: Path, name: str = "all", **settings: Any) -> Study:
    """All runs behind `name`, pretended."""
    made = Study(build(Options, {"out": root, "device": "cpu", **settings}))
    with mock.patch("laworder.paper.store.git_state", return_value=None):  # asking git takes longer than all the rest
        _pretend_all(made, name)
    return made


def _pretend_all(made: Study, name: str) -> None:
    for one in made.resolver.every(wanted(name).jobs(made.setting)):
        pretend(one)


def pretend(one: Resolved) -> None:
    """Results as the command would leave them."""
    one.out.mkdir(parents=True, exist_ok=True)
    order = order_of(one, "cpu")
    record = begin(order)
    {
        "seg train": _judged,
        "seg evaluate": _judged,
        "synth train": _learner,
        "synth sample": _images,
        "data audit": _audit,
        "evaluate": _quality,
        "cases": _cases,
        "profile": _profile,
    }.get(one.job.command, lambda _: None)(one)
    finish(order, record, "done", 10.0)


def _judged(one: Resolved) -> None:
    value = 0.5 + (zlib.crc32(one.job.label.encode()) % 4000) / 1e4
    scores = {"dice": value, "iou": value - 0.1}
    bins = [{"low": a, "high": b, "images": 10, "mean": value + 0.02 * i} for i, (a, b) in enumerate(BINS)]
    model = {"mean": scores, "mean_over_subsets": scores, "dice_by_lesion_size": bins}
    _write(one, "evaluation.json", {"model": model, "validation": scores})
    _write(one, "manifest.json", {"kind": one.job.command, "config": {"model": "<b>&quoted</b>"}, "outcome": "done"})


def _learner(one: Resolved) -> None:
    (one.out / "looks").mkdir(exist_ok=True)
    for step in (10, 20, 30):
        level = np.linspace(0, 8 * step, 64, dtype=np.uint8)
        Image.fromarray(np.tile(level, (32, 1))).save(one.out / "looks" / f"delta-{step:08d}.png")


def _images(one: Resolved) -> None:
    raw = from_source(
        PhantomSource(4, size=48), name="phantom", licence="drawn", classes=("background", "lesion"), rules={}
    )
    prepare(raw, one.out)


def _audit(one: Resolved) -> None:
    found = [{"severity": "error", "text": "3 images are in two splits"}, {"severity": "warning", "text": "x < y & z"}]
    _write(one, "audit.json", {"findings": found})


def _quality(one: Resolved) -> None:
    value = 50 + zlib.crc32(one.job.label.encode()) % 40
    sections = {
        "fidelity": {"networks": {"inception": {"fid": value}}},
        "clip_i": {"is_clip": True, "paired": {"mean": value / 100}},
    }
    _write(one, "evaluation.json", {"sections": sections})


def _profile(one: Resolved) -> None:
    row = {"ms_per_image": 1.5, "images_per_second": 666.0, "peak_mb": 12.0}
    _write(one, "runtime.json", {"models": dict.fromkeys(one.values["models"], row)})


def _cases(one: Resolved) -> None:
    source, listed = PhantomSource(3, size=64), []
    for which, pair in zip(("best", "median", "worst"), map(source.read, range(3)), strict=True):
        mask = (pair.mask > 0).astype(np.uint8) * 255
        drawn = {"image": pair.image, "truth": mask, "prediction": np.roll(mask, 4, axis=0)}
        files = {}
        for part, picture in drawn.items():
            path = one.out / f"{which}-{part}.png"
            Image.fromarray(picture).save(path)
            files[part] = {"file": path.name, "sha256": sha256_file(path)}
        listed.append({"which": which, "among": 3, "name": pair.name, "dice": 0.5, "files": files})
    _write(one, "cases.json", {"cases": listed})


def _write(one: Resolved, name: str, content: Any) -> None:
    (one.out / name).write_text(json.dumps(content))
