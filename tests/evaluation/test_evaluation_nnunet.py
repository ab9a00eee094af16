"""The real nnU-Net v2: planned, preprocessed, trained for one short epoch and predicting, on twelve phantoms.

It runs in an environment of its own (tools/nnunet_env.py), as `--nnunet` lets anyone have it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from evaluation.tiny import ROOT, phantoms, written
from laworder.cli import main
from laworder.errors import MissingExtraError, UserError
from laworder.evaluation.leakage import training_of
from laworder.segmenters.nnunet import trainer_folder
from laworder.segmenters.nnunet_driver import NnUNet, is_nnunet, predictor_of, read_about


def nnunet_variables() -> dict[str, str]:
    """Those of this process, which only its children may have."""
    return {name: value for name, value in os.environ.items() if name.lower().startswith("nnunet")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nnunet_is_trained_downstream_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "nnunet_env.py"], check=True, capture_output=True, text=True
    )
    python = made.stdout.split()[-1]
    real = phantoms(8, seed=0)
    written(real, tmp_path / "real")
    others = [replace(o, name=r.name) for o, r in zip(phantoms(4, seed=7), real, strict=False)]
    written(others, tmp_path / "synthetic")
    before = nnunet_variables()
    places = [str(tmp_path / "real"), str(tmp_path / "synthetic"), "--out", str(tmp_path / "study")]
    short = ["--seeds", "0", "--doses", "2", "--held-out", "0.25", "--epochs", "1", "--iterations", "2"]
    code = main(["evaluate", "downstream", *places, *short, "--model", "nnunet", "--nnunet", python, "--device", "cpu"])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert nnunet_variables() == before
    work = tmp_path / "study" / "nnunet"
    folds = json.loads((work / "preprocessed" / "Dataset001_laworder" / "splits_final.json").read_text())
    assert [(len(fold["train"]), len(fold["val"])) for fold in folds] == [(6, 2), (8, 2)]
    assert folds[0]["val"] == folds[1]["val"]
    found = json.loads((tmp_path / "study" / "downstream.json").read_text())
    assert [record["asked"] for record in found["doses"]] == [0, 2]
    model = NnUNet(work, epochs=1, iterations=2).model
    assert is_nnunet(model)
    masks = sorted((model / "fold_1" / "validation").glob("*.png"))
    assert len(masks) == 2
    with Image.open(masks[0]) as mask:
        assert mask.size == (64, 64)
    # The trained folder is a judge: nnU-Net's own prediction, on what it was not trained on.
    unseen = written(phantoms(3, seed=11), tmp_path / "unseen")
    fresh = written(
        [replace(o, name=r.name) for o, r in zip(phantoms(4, seed=21), real, strict=False)], tmp_path / "new"
    )
    judged = [str(tmp_path / "real"), "--out", str(tmp_path / "judged"), "--device", "cpu"]
    how = ["--only", "recovery", "--judge", str(model), "--nnunet", python, "--cache", str(tmp_path / "cache")]
    code = main(["evaluate", str(tmp_path / "synthetic"), *judged, *how, "--held-out", str(unseen)])
    assert code == 2
    assert "was trained on 2 of the 4 generated images" in capsys.readouterr().err  # in the fold of dose 2
    code = main(["evaluate", str(fresh), *judged, *how, "--held-out", str(tmp_path / "real")])
    assert code == 2
    assert "was trained on 6 of the 8 real held-out images" in capsys.readouterr().err
    code = main(["evaluate", str(fresh), *judged, *how, "--held-out", str(unseen)])
    said = capsys.readouterr()
    assert code == 0, said.err
    recovery = json.loads((tmp_path / "judged" / "evaluation.json").read_text())["sections"]["recovery"]
    assert recovery["label"].startswith("nnU-Net v2")
    assert (recovery["generated"]["images"], recovery["real_held_out"]["images"]) == (4, 3)
    assert recovery["remarks"] == []


def test_a_python_without_nnunet_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"laworder\[nnunet\]"):
        NnUNet(tmp_path, device="cpu").train(0)
    with pytest.raises(UserError, match="this Python has no nnunetv2"):
        NnUNet(tmp_path, python=Path(sys.executable), device="cpu").train(0)


def test_a_trained_folder_says_which_trainer_predicts_with_it(tmp_path: Path) -> None:
    def driver(name: str) -> NnUNet:
        return predictor_of(Path(f"{name}__nnUNetPlans__2d"), tmp_path, python=None, device="cpu")

    short = driver("nnUNetTrainerShort3x20")
    assert (short.epochs, short.iterations, short.trainer_name) == (3, 20, "nnUNetTrainerShort3x20")
    assert driver("nnUNetTrainer").trainer_name == "nnUNetTrainer"
    assert "nnUNet_extTrainer" not in driver("nnUNetTrainer")._variables()
    assert driver("nnUNetTrainerORDER")._variables()["nnUNet_extTrainer"] == str(trainer_folder())


def test_an_nnunet_without_its_raw_data_is_not_known(tmp_path: Path) -> None:
    model = tmp_path / "results" / "Dataset001_laworder" / "nnUNetTrainer__nnUNetPlans__2d"
    (model / "fold_0").mkdir(parents=True)
    for file in ("plans.json", "dataset.json", "fold_0/checkpoint_final.pth"):
        (model / file).write_text("{}")
    known = training_of(str(model))
    assert known.images is None
    assert "no raw data beside it" in known.words


def test_a_judge_that_reads_volumes_is_refused(tmp_path: Path) -> None:
    about = {"file_ending": ".nii.gz", "channel_names": {"0": "CT"}}
    (tmp_path / "dataset.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"reads \.nii\.gz files of 1 channels"):
        read_about(tmp_path)
    assert not is_nnunet(tmp_path)
