"""`laworder seg train`: learns, resumes to the bit, writes what it promises, and says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from laworder.cli import main
from laworder.config import build
from laworder.data.sources.phantom import PhantomSource
from laworder.data.split_files import write_splits
from laworder.data.splits import make_folds
from laworder.errors import UserError
from laworder.runs import Checkpoints, read_manifest, read_metrics
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.train import train

SMALL = {"data": "phantom", "size": 32, "phantom.count": 12, "batch": 4, "epochs": 2, "held_out": 0.3, "device": "cpu"}


def settings(**more: Any) -> TrainConfig:
    return build(TrainConfig, {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = Checkpoints(folder / "checkpoints").latest()
    assert found is not None
    return found.state["modules"]["model"]


def test_a_run_holds_what_was_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items() if key != "data"]
    assert main(["seg", "train", "phantom", "--out", str(tmp_path / "run"), *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Dice 0.")
    assert str(tmp_path / "run" / "report.html") in out
    manifest = read_manifest(tmp_path / "run")
    assert (manifest.outcome, manifest.kind) == ("done", "seg train")
    assert len(manifest.data["pairs"]) == 64
    summary = json.loads((tmp_path / "run" / "evaluation.json").read_text())["validation"]
    assert summary["images"] == len((tmp_path / "run" / "validation.csv").read_text().splitlines()) - 1 == 4
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["lr"] < lines[0]["lr"] == pytest.approx(1e-4)
    measures = json.loads((tmp_path / "run" / "evaluation.json").read_text())["measures"]
    assert measures["mean"]["dice"] == pytest.approx(summary["dice"])
    low, high = measures["interval_95"]["dice"]
    assert low <= summary["dice"] <= high
    page = (tmp_path / "run" / "report.html").read_text()
    for title in (
        "Scores on the held-out",
        "Learning curves",
        "Dice against lesion size",
        "Calibration",
        "4 worst cases",
    ):
        assert title in page
    assert page.count("<svg") >= 5
    assert page.count("data:image") == 3 * 4


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(settings(out=tmp_path / name, seed=seed))
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


@pytest.mark.slow
def test_it_learns_to_find_lesions(tmp_path: Path) -> None:
    config = build(TrainConfig, {**SMALL, "out": tmp_path, "size": 64, "epochs": 25, "batch": 8, "phantom.count": 80,
                                 "phantom.modality": "mr", "phantom.distractor": 0, "held_out": 0.2,
                                 "validate_every": 5, "optimiser.lr": 1e-2, "optimiser.name": "adamw"})  # fmt: skip
    assert train(config).validation.summary()["dice"] > 0.3


@pytest.mark.parametrize("model", ["egeunet", "mkunet_t", "order_backbone"])
def test_every_kind_of_model_trains_with_its_own_supervision(tmp_path: Path, model: str) -> None:
    trained = train(settings(out=tmp_path / model, model=model, epochs=1, channels=1, precision="bf16"))
    assert trained.model.in_channels == 1
    assert read_metrics(tmp_path / model / "metrics.jsonl")[0]["loss"] > 0


def test_several_classes_and_a_folder_of_images(tmp_path: Path) -> None:
    source = PhantomSource(8, size=40, modality="ct")
    for index in range(8):
        pair = source.read(index)
        Image.fromarray(pair.image[..., 0]).save(tmp_path / f"{pair.name}.png")
        Image.fromarray(pair.mask * np.uint8(255)).save(tmp_path / f"{pair.name}_mask.png")
    trained = train(settings(data=str(tmp_path), out=tmp_path / "run", classes=2, epochs=1))
    assert trained.model.classes == 2
    assert trained.validation.probability.min() >= 0


def test_a_split_file_decides_who_is_held_out(tmp_path: Path) -> None:
    source = PhantomSource(12, size=32, modality="colon", distractor=0.3)
    folds = make_folds(source.names, source.groups, folds=3, seed=4)
    write_splits(tmp_path / "split.json", folds)
    trained = train(settings(out=tmp_path / "run", split=tmp_path / "split.json", fold=1, epochs=1))
    assert sorted(trained.validation.names) == sorted(folds[1].val)
    with pytest.raises(UserError, match="holds 3 splits, numbered from 0, and no 3"):
        train(settings(out=tmp_path / "other", split=tmp_path / "split.json", fold=3))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "order_1"}, "unknown model 'order_1'; did you mean 'order_"),
        ({"data": "/nowhere"}, "'/nowhere' is no folder; give a folder of images and masks, or the word 'phantom'"),
        ({"device": "tpuu"}, "device: 'tpuu' is none; use cpu, cuda, cuda:1 … or auto"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        train(settings(out=tmp_path / "run", **more))
    assert str(caught.value).startswith(message)


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    train(settings(out=tmp_path / "run", epochs=1))
    with pytest.raises(UserError, match="batch was 4 and is now 2"):
        train(settings(out=tmp_path / "run", epochs=1, batch=2))
