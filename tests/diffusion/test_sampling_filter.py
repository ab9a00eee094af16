"""The filter after the fact: off unless a judge is named, and never silent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model_folder
from PIL import Image

from laworder.config import build
from laworder.data.prepared import PreparedSource, read_index
from laworder.diffusion.sampling.command import Config, run
from laworder.diffusion.sampling.outfolder import OutFolder
from laworder.diffusion.sampling.provenance import png, read_statement, recovered, sha256, text_of
from laworder.errors import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "segmentation"))
from bright import saved


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("judge") / "bright", in_channels=3, size=64)


@pytest.fixture
def drawn(model: Path, tmp_path: Path) -> Path:
    """Six images, of which three show a bright lesion where the mask has it, as a good model would."""
    out = tmp_path / "set"
    run(config(model, out))
    folder = OutFolder(out)
    for index, name in enumerate(PreparedSource(out).names):
        image, mask, statement = folder.files(name)
        lesion = np.asarray(Image.open(mask))[..., None] > 0
        content = png(np.where(lesion if index < 3 else ~lesion, 250, 20).astype(np.uint8).repeat(3, axis=2))
        image.write_bytes(content)
        told = read_statement(statement)
        assert told is not None
        told["record"]["image_sha256"] = sha256(content)
        statement.write_text(text_of(told))
    return out


def config(model: Path, out: Path, **more: Any) -> Config:
    told = {"phantom.count": 6, "steps": 2, "batch": 4, "device": "cpu", "data": "phantom", **more}
    return build(Config, {"model": model, "out": out, **told})


def filtered(model: Path, out: Path, judge: str, **more: Any) -> dict[str, Any]:
    run(config(model, out, **{"filter.judge": judge, "filter.least": 0.6, **more}))
    return read_index(out)


def test_without_a_judge_all_are_kept_and_nothing_is_said(
    model: Path, drawn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(config(model, drawn))
    assert read_index(drawn)["filter"] is None
    assert "filter" not in capsys.readouterr().out


def test_what_the_judge_does_not_find_is_put_aside_and_reported(
    model: Path, drawn: Path, judge: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = list(PreparedSource(drawn).names)
    report = filtered(model, drawn, judge)["filter"]
    assert (report["judged"], report["kept"], report["least"]) == (6, 3, 0.6)
    assert [one["name"] for one in report["dropped"]] == sorted(names[3:])
    assert report["mean_dice_before"] < report["mean_dice_after"]
    assert "filter: 3 of 6 kept, recovered Dice at least 0.6" in capsys.readouterr().out
    source = PreparedSource(drawn, verify=True)
    assert list(source.names) == names[:3]
    assert all(record["recovered_dice"] > 0.9 for record in source.records)
    for part in ("images", "masks", "provenance"):
        assert len(list((drawn / part).iterdir())) == 3
        assert len(list((drawn / "dropped" / part).iterdir())) == 3
    told = read_statement(drawn / "dropped" / "provenance" / f"{names[4]}.json")
    assert told is not None
    assert recovered(told, report["judge_sha256"]) == next(
        one["dice"] for one in report["dropped"] if one["name"] == names[4]
    )


def test_it_can_be_undone_and_judged_anew(model: Path, drawn: Path, judge: str, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in (drawn / "images").iterdir()}
    filtered(model, drawn, judge)
    run(config(model, drawn))
    assert {file.name: file.read_bytes() for file in (drawn / "images").iterdir()} == before
    assert read_index(drawn)["filter"] is None
    other = saved(tmp_path / "other", in_channels=3, size=64, level=0.05)
    report = filtered(model, drawn, other, **{"filter.least": 0.0})["filter"]
    assert report["kept"] == 6
    told = json.loads(next((drawn / "provenance").iterdir()).read_text())
    judged = [a for a in told["assertions"] if a["label"] == "laworder.recovery"]
    assert [a["data"]["judge_sha256"] for a in judged] == [report["judge_sha256"]]


def test_a_filter_that_would_leave_nothing_says_so(model: Path, drawn: Path, tmp_path: Path) -> None:
    blind = saved(tmp_path / "blind", in_channels=3, size=64, level=2.0)
    with pytest.raises(UserError, match=r"filter: no image has a recovered Dice of 0\.6 \(best 0\.000\): all would be"):
        filtered(model, drawn, blind)
    assert len(list((drawn / "images").iterdir())) == 6
