"""`laworder synth inspect`: a model's own words, checked, and sheets of what it draws."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from models import model_folder
from PIL import Image
from training import settings

from laworder.cli import main
from laworder.config import build
from laworder.diffusion.inspection.facts import Model
from laworder.diffusion.inspection.sheets import spread_by_size
from laworder.diffusion.sampling.command import Config as SampleSettings
from laworder.diffusion.sampling.command import run as sample
from laworder.diffusion.sampling.masks import Survey
from laworder.diffusion.score import as_text
from laworder.diffusion.train import train
from laworder.errors import UserError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, with all that a run leaves."""
    folder = tmp_path_factory.mktemp("runs") / "law"
    train(settings(out=folder, objective="law", prompt="a polyp"))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


def inspected(out: Path, *words: str) -> int:
    return main(["synth", "inspect", *words, "--steps", "2", "--images", "3", "--device", "cpu", "--out", str(out)])


def pixels(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.array(picture)


def test_it_tells_what_a_run_was_trained_on_and_how(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspected(tmp_path, str(trained)) == 0
    told = capsys.readouterr().out
    card = json.loads((trained / "model" / "laworder.json").read_text())
    for words in ("control by masks", "law", "pairs of phantom", card["data"]["hash"], "a polyp", "kept of 4, seed 0"):
        assert words in told
    for name, value in card["metrics"].items():
        assert f"{name}:" in told
        assert as_text(value, 4) in told
    page = (tmp_path / "inspection.html").read_text()
    assert page.count("<img") == 3 * 4
    assert "http" not in page.replace("http://www.w3.org", "")
    assert pixels(tmp_path / "sheet.png").shape == (3 * 36, 4 * 36, 3)


def test_a_sheet_holds_what_synth_sample_draws(model: Path, tmp_path: Path) -> None:
    words = ["--data", "phantom", "--guidance", "1"]
    assert inspected(tmp_path, str(model), *words) == 0
    sheet = pixels(tmp_path / "sheet.png")
    told = {"model": model, "data": "phantom", "phantom.count": 400, "steps": 2, "guidance": 1, "device": "cpu"}
    first = sheet[2:66, 2:66, 0] > 0
    source = Model.at(model)
    assert source.manifest is None
    sample(build(SampleSettings, {**told, "out": tmp_path / "set", "only": smallest(first)}))
    drawn = pixels(next((tmp_path / "set" / "images").iterdir()))
    shown = sheet[2:66, 2 * 68 + 2 : 2 * 68 + 66]
    assert np.abs(shown.astype(int) - drawn).max() <= 1


def smallest(mask: np.ndarray) -> str:
    """The phantom whose mask this is."""
    from laworder.data.opening import Phantom, open_source

    source = open_source("phantom", masks=None, size=64, phantom=Phantom())
    return next(source.names[i] for i in range(len(source)) if np.array_equal(source.read(i).mask > 0, mask))


def test_models_stand_side_by_side(trained: Path, tmp_path: Path) -> None:
    assert inspected(tmp_path, str(trained), "--beside", str(trained / "model")) == 0
    assert pixels(tmp_path / "sheet.png").shape == (3 * 36, 6 * 36, 3)
    columns = pixels(tmp_path / "sheet.png")
    assert np.array_equal(columns[:, 2 * 36 : 3 * 36], columns[:, 4 * 36 : 5 * 36]), "the same noise for all"


def test_without_masks_at_hand_it_only_tells(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspected(tmp_path / "a", str(shutil.copytree(trained / "model", tmp_path / "alone"))) == 0
    assert "no sheet: this model lies in no run, so give --data" in capsys.readouterr().err
    assert not (tmp_path / "a" / "sheet.png").exists()
    moved = shutil.copytree(trained, tmp_path / "run")
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["config"]["data"] = "/nowhere"
    (moved / "manifest.json").write_text(json.dumps(manifest))
    assert inspected(tmp_path / "b", str(moved)) == 0
    assert "no sheet: the data of this run is not at hand ('/nowhere' is no folder" in capsys.readouterr().err


def test_weights_that_are_not_those_of_the_card_are_found(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    weights = copy / "unet" / "diffusion_pytorch_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UserError, match=r"unet/diffusion_pytorch_model\.safetensors: not the weights"):
        Model.at(copy)
    with pytest.raises(UserError, match=r"no model folder: laworder\.json is missing"):
        Model.at(tmp_path / "none")


def test_a_prior_is_told_and_not_drawn(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    card = json.loads((copy / "laworder.json").read_text())
    (copy / "laworder.json").write_text(json.dumps({**card, "stage": "prior"}))
    assert inspected(tmp_path, str(copy), "--data", "phantom") == 0
    assert "image prior, without masks" in capsys.readouterr().out
    assert not (tmp_path / "sheet.png").exists()


def test_the_plan_does_nothing(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspected(tmp_path / "out", str(model), "--dry-run") == 0
    assert "draw 3 masks of the held-out masks of its own data in 2 steps" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_masks_are_spread_over_sizes() -> None:
    found = Survey([0, 50, 10, 40, 30, 20], [False] * 6, [False] * 6, np.zeros((1, 1), bool), "")
    assert spread_by_size(found, 3) == [2, 4, 1]
    assert spread_by_size(found, 9) == [2, 5, 4, 3, 1]
    assert spread_by_size(found, 1) == [2]
