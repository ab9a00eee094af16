"""`laworder seg evaluate`: the numbers are those of the masks, whichever door the model came in by."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import laworder
from laworder.cli import main
from laworder.config import build
from laworder.data.load import load_arrays
from laworder.data.prepared import PreparedSource
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError
from laworder.metrics.overlap import count
from laworder.order.base import Segmenter
from laworder.order.hub import Preprocessing
from laworder.segmentation.judge import judge, subsets_of
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.train import Trained, train

CPU = torch.device("cpu")
PHANTOM = {"data": "phantom", "size": 32, "phantom.count": 12}
SMALL = {**PHANTOM, "batch": 4, "epochs": 2, "held_out": 0.3, "device": "cpu"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, train(build(TrainConfig, {**SMALL, "out": folder, "optimiser.ema": 0.5, "optimiser.lr": 0.01}))


def words(*more: str, out: Path) -> list[str]:
    return ["seg", "evaluate", *more, "--phantom.count", "12", "--device", "cpu", "--out", str(out)]


def evaluated(*more: str, out: Path) -> dict[str, Any]:
    assert main(words(*more, out=out)) == 0
    return json.loads((out / "evaluation.json").read_text())


def test_a_runs_held_out_part_scores_as_in_training(
    trained: tuple[Path, Trained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, result = trained
    found = evaluated(str(folder), "phantom", "--part", "held-out", out=tmp_path)
    expected = result.validation.summary()
    for measure in ("dice", "iou", "precision", "recall"):
        assert found["model"]["mean"][measure] == pytest.approx(expected[measure], abs=1e-6)
    assert found["model"]["images"] == expected["images"] == 4
    output = capsys.readouterr()
    assert f"Dice {expected['dice']:.3f}" in output.out
    assert output.err == ""
    evaluated(str(folder), "phantom", out=tmp_path)
    assert "was trained on most of these pairs" in capsys.readouterr().err


def test_every_door_leads_to_the_same_model(trained: tuple[Path, Trained], tmp_path: Path) -> None:
    folder, result = trained
    model = load_segmenter(str(folder), device=CPU)
    x = torch.rand(1, 3, 32, 32)
    assert torch.equal(model(x), result.model.eval()(x))
    model.save_pretrained(tmp_path / "saved")
    again = load_segmenter(str(tmp_path / "saved"), device=CPU)
    assert torch.equal(model(x), again(x))
    assert (again.preprocessing.size, not again.training) == (32, True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "is no folder and no shipped model"),
        ("./owner/model", "is no folder and no shipped model"),
        ("{tmp}", "has no config.json"),
        ("{tmp}/file", "is a file"),
        ("{tmp}/other", "is a run of `synth train`"),
    ],
)
def test_what_is_no_model_is_said(tmp_path: Path, trained: tuple[Path, Trained], source: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    manifest = json.loads((trained[0] / "manifest.json").read_text())
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest | {"kind": "synth train"}))
    with pytest.raises(UserError, match=message):
        load_segmenter(source.replace("{tmp}", str(tmp_path)), device=CPU)


class Threshold(Segmenter):
    """Lesion where the first channel is above a level: right by construction on a bright lesion."""

    def __init__(self, *, level: float = 0.5) -> None:
        super().__init__(in_channels=1)
        self.level = level
        self.preprocessing = Preprocessing(size=32, mean=(0.0,), std=(1.0,))

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return 20 * (x - self.level)


@pytest.fixture
def bright(tmp_path: Path) -> Path:
    """Gray pictures whose bright square is the lesion, in two subfolders; one has no lesion."""
    folder = tmp_path / "bright"
    for number in range(6):
        pool = folder / ("a" if number < 4 else "b")
        for kind in ("images", "masks"):
            (pool / kind).mkdir(parents=True, exist_ok=True)
        mask = np.zeros((32, 32), np.uint8)
        mask[8 : 8 + 3 * number, 8:20] = 255
        image = np.where(mask > 0, 200, 90 if number < 5 else 140).astype(np.uint8)
        Image.fromarray(image).save(pool / "images" / f"{number}.png")
        Image.fromarray(mask).save(pool / "masks" / f"{number}.png")
    return folder


def test_the_files_say_what_the_masks_say(bright: Path, tmp_path: Path) -> None:
    Threshold().save_pretrained(tmp_path / "good")
    Threshold(level=0.1).save_pretrained(tmp_path / "bad")
    found = evaluated(
        str(tmp_path / "good"), str(bright), "--against", str(tmp_path / "bad"), out=tmp_path / "evaluation"
    )
    rows = list(csv.DictReader((tmp_path / "evaluation" / "images.csv").read_text().splitlines()))
    assert [row["subset"] for row in rows] == ["a"] * 4 + ["b"] * 2
    # Image 5 is bright all over: its 15×12 square is found with all the rest.
    area = 15 * 12
    assert [float(row["dice"]) for row in rows] == pytest.approx([1] * 5 + [2 * area / (1024 + area)], abs=1e-6)
    assert rows[0]["hd95"] == "nan"
    model = found["model"]
    assert model["hd95_left_out"] == 1
    assert model["mean"]["hd95"] == pytest.approx(sum(float(row["hd95"]) for row in rows[1:]) / 5, abs=1e-6)
    assert model["subsets"]["a"]["hd95"] == 0
    assert (model["images"], model["images_with_lesion"]) == (6, 5)
    assert model["subsets"]["a"]["dice"] == pytest.approx(1)
    assert model["subsets"]["b"]["dice"] == pytest.approx((1 + 2 * area / (1024 + area)) / 2)
    assert model["mean_over_subsets"]["dice"] == pytest.approx((1 + model["subsets"]["b"]["dice"]) / 2)
    assert set(model["dice_conventions"]) == {"per_image", "pooled", "curve"}
    assert model["dice_conventions"]["per_image"] == pytest.approx(model["mean"]["dice"])
    assert sum(b["pixels"] for b in model["calibration"]["bins"]) == 6 * 1024
    dice = found["paired"]["dice"]
    assert (dice["wins"], dice["ties"], dice["losses"]) == (5, 1, 0)
    assert dice["difference"] == pytest.approx(model["mean"]["dice"] - found["against"]["mean"]["dice"])
    assert found["manifest"]["config"]["model"] == str(tmp_path / "good")
    page = (tmp_path / "evaluation" / "report.html").read_text()
    for text in ("Paired comparison", "mean over subsets", "Calibration", "worst cases", "boundary F1", "HD95"):
        assert text in page


def test_models_of_other_sizes_and_channels_are_compared_on_one_grid(tmp_path: Path, bright: Path) -> None:
    Threshold().save_pretrained(tmp_path / "gray")
    colour = laworder.create("order_backbone", in_channels=3)
    colour.preprocessing = Preprocessing(size=64)
    colour.save_pretrained(tmp_path / "colour")
    found = evaluated(str(tmp_path / "gray"), str(bright), "--against", str(tmp_path / "colour"), out=tmp_path / "out")
    assert found["size"] == 32
    assert found["paired"]["dice"]["images"] == 6
    assert found["model"]["by_lesion_size"] != found["against"]["by_lesion_size"]


def test_subsets() -> None:
    source = PhantomSource(8, size=32, modality="mixed")
    assert len(set(subsets_of(source, "group"))) == 2
    assert set(subsets_of(source, r"^(\w+)-")) == {"colon", "mr"}
    assert set(subsets_of(source, "none")) == set(subsets_of(source, "folder")) == {"all"}
    with pytest.raises(UserError, match="no parentheses"):
        subsets_of(source, "colon")


def test_the_pools_of_prepared_data_are_subsets(bright: Path, tmp_path: Path) -> None:
    assert main(["data", "prepare", "folder", "--from", str(bright), "--to", str(tmp_path / "prepared")]) == 0
    index = tmp_path / "prepared" / "dataset.json"
    content = json.loads(index.read_text())
    names = [pair["name"] for pair in content["pairs"]]
    content["pools"] = {"few": names[:2], "all of them": names, "others": names[2:5]}
    index.write_text(json.dumps(content))
    assert subsets_of(PreparedSource(tmp_path / "prepared"), "folder") == ["few"] * 2 + ["others"] * 3 + ["all of them"]


def test_judge_agrees_with_the_parts_it_is_made_of(bright: Path) -> None:
    pairs = load_arrays(FolderSource(bright, progress=False), 32, 1, progress=False)
    probability = torch.rand(6, 32, 32, generator=torch.Generator().manual_seed(1))
    found = judge(probability, pairs.masks, names=pairs.names, threshold=0.7)
    assert torch.equal(found.scores["dice"], count(probability > 0.7, pairs.masks[:, 0] > 0).dice())
    assert math.isinf(found.scores["hd95"][0])
    summary = found.summary()
    low, high = summary["interval_95"]["dice"]
    assert low < summary["mean"]["dice"] < high
    assert summary["subsets"] == {"all": {"images": 6, **summary["mean"]}}


class Leaning(Threshold):
    """Sees more lesion the farther right and down."""

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.linspace(0, 5, x.shape[-1]) + torch.linspace(-1, 0, x.shape[-2])[:, None]


def test_mirror_images_are_averaged() -> None:
    images = torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    plain, mirrored = (Predictor(Leaning(), CPU, tta) for tta in (False, True))
    for axes in ((-1,), (-2,), (-2, -1)):
        torch.testing.assert_close(mirrored(images.flip(axes)), mirrored(images).flip(axes))
        assert not torch.allclose(plain(images.flip(axes)), plain(images).flip(axes), atol=0.01)
    flips = [plain(images.flip(f)).flip(f) if f else plain(images) for f in ((), (-1,), (-2,), (-2, -1))]
    torch.testing.assert_close(mirrored(images), torch.stack(flips).mean(0))


def test_bad_requests_are_one_line(tmp_path: Path, bright: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Threshold().save_pretrained(tmp_path / "good")
    for more, message in (
        ([str(bright), "--part", "held-out"], "only a run folder knows what it held out"),
        ([str(tmp_path / "none")], "is no folder"),
        ([str(bright), "--against", "nobody"], "is no folder and no shipped model"),
    ):
        assert main(words(str(tmp_path / "good"), *more, out=tmp_path / "out")) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
