"""What a training writes is JSON to every reader, also where a number could not be measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from training import SMALL, settings

from laworder.cli import main
from laworder.diffusion import train_vae as vae
from laworder.diffusion.inspection.facts import Model
from laworder.diffusion.score import Realism, as_text
from laworder.diffusion.train import train


def strict(file: Path) -> Any:
    """NaN and Infinity are no JSON, though Python reads them."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{file.name} holds {word}")

    return json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)


def test_a_realism_that_cannot_be_measured_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Realism, "__call__", lambda *_: {"val_realism": math.inf})
    summary = train(settings(out=tmp_path))
    assert strict(tmp_path / "training.json") == summary
    assert summary["metrics"]["val_realism"] is None
    assert summary["metrics"]["val_probe_blank_inside"] >= 0
    assert strict(tmp_path / "model" / "laworder.json")["metrics"] == summary["metrics"]
    assert Model.at(tmp_path).metrics()["val_realism"] is None
    assert "realism not measurable on 3 fixed" in (tmp_path / "report.html").read_text(encoding="utf-8")
    words = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items() if key != "data"]
    assert main(["synth", "train", "phantom", *words, f"--out={tmp_path}"]) == 0
    assert "realism not measurable at step 2" in capsys.readouterr().out
    assert main(["synth", "inspect", str(tmp_path), f"--out={tmp_path / 'seen'}", "--images=0"]) == 0
    assert "not measurable" in capsys.readouterr().out


def test_an_autoencoder_without_held_out_lesions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_diffusion_vae import vae_settings

    monkeypatch.setattr(vae, "judged", lambda *_: (30.0, math.nan))
    summary = vae.train_vae(vae_settings(out=tmp_path))
    assert strict(tmp_path / "autoencoder.json") == summary
    assert (summary["psnr"], summary["psnr_lesion"]) == (30.0, None)
    assert "30.00 dB over whole images and not measurable inside lesions" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


def test_numbers_as_people_read_them() -> None:
    assert [as_text(value, 2) for value in (100.5, None, math.inf, math.nan)] == ["100.50", *["not measurable"] * 3]
    assert as_text(3.0, 1, "dB") == "3.0 dB"
