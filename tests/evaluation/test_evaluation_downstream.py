"""`evaluate downstream`: nested doses, real validation, resumption, and differences whose answer is known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluation.tiny import Listed, phantoms, written
from laworder.cli import main
from laworder.errors import UserError
from laworder.evaluation import downstream_command
from laworder.evaluation.doses import REAL, SYNTHETIC, Cell, cells, merged
from laworder.evaluation.downstream_command import _seen_in_training
from laworder.evaluation.downstream_report import in_words, paper
from laworder.evaluation.gains import by_dose
from laworder.evaluation.judging import Scores
from laworder.evaluation.trainers import RegisteredTrainer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def real() -> Listed:
    return Listed(phantoms(30, seed=0))


@pytest.fixture(scope="module")
def synthetic(real: Listed) -> Listed:
    """Other patients' images under the masks' names."""
    others = phantoms(24, seed=7)
    return Listed([replace(other, name=name) for other, name in zip(others, real.names, strict=False)])


def study(real: Listed, synthetic: Listed, **more: object) -> list[Cell]:
    settings: dict[str, object] = {"seeds": (0, 1), "doses": (0, 5, 10), "held_out": 0.2, "split_by": "image"}
    return cells(real, synthetic, **{**settings, **more})  # type: ignore[arg-type]


def test_doses_are_nested_and_validation_is_real_and_the_same(real: Listed, synthetic: Listed) -> None:
    found = study(real, synthetic)
    assert [(c.seed, c.dose) for c in found] == [(s, d) for s in (0, 1) for d in (0, 5, 10)]
    for seed in (0, 1):
        none, some, more = (c.split for c in found if c.seed == seed)
        assert none.val == some.val == more.val
        assert all(name.startswith(REAL) for name in none.val)
        assert set(none.train) < set(some.train) < set(more.train)
        added = set(more.train) - set(none.train)
        assert len(added) == 10
        assert all(name.startswith(SYNTHETIC) for name in added)
        validated = {name.removeprefix(REAL) for name in none.val}
        assert not validated & {name.removeprefix(SYNTHETIC) for name in added}
    assert found[0].split.val != found[3].split.val


def test_masks_that_are_validated_on_are_added_only_when_asked(real: Listed, synthetic: Listed) -> None:
    everything = (0, 1000)
    assert {c.dose for c in study(real, synthetic, doses=everything, keep_validation_masks=True)} == {0, 24}
    capped = study(real, synthetic, doses=everything)
    assert all(c.dose == 0 or c.dose == 24 - len(_validated(c, synthetic)) for c in capped)
    with pytest.raises(UserError, match="no synthetic image is left to add"):
        study(real, synthetic, doses=(0,))


def _validated(cell: Cell, synthetic: Listed) -> set[str]:
    return {name.removeprefix(REAL) for name in cell.split.val} & set(synthetic.names)


def test_updates_are_held_equal(real: Listed, synthetic: Listed, tmp_path: Path) -> None:
    made = {"model": "order_01", "data": tmp_path, "out": tmp_path, "recipe": "paper", "device": torch.device("cpu")}
    cell = study(real, synthetic, doses=(0, 12))[1]
    equal = RegisteredTrainer(settings={"epochs": 90}, **made)  # type: ignore[arg-type]
    assert equal.config(cell).epochs == math.ceil(90 * 24 / 36)
    assert replace(equal, equal_updates=False).config(cell).epochs == 90
    assert equal.config(cell).optimiser.lr == 1e-4


def test_both_kinds_lie_in_one_prepared_folder(real: Listed, synthetic: Listed, tmp_path: Path) -> None:
    from laworder.data.prepared import PreparedSource

    data = merged(real, synthetic, tmp_path / "data")
    whole = PreparedSource(data, verify=True)
    assert len(whole) == 54
    assert len(PreparedSource(data, "synthetic")) == 24
    place = whole.names.index(REAL + real.names[3])
    assert (whole.read(place).image == real.pairs[3].image).all()
    assert (whole.read(place).mask == real.pairs[3].mask).all()


def test_a_known_gain_is_found_and_tested() -> None:
    """Under every seed each image gains 0.1 with noise: difference, spread, p and effect follow."""
    draw = torch.Generator().manual_seed(0)
    plan, found = [], {}
    for seed in range(3):
        for dose in (0, 10):
            plan.append(Cell(seed, dose, dose, None))  # type: ignore[arg-type]
            names = [f"p{seed * 5 + k}" for k in range(20)]
            base = torch.linspace(0.3, 0.8, 20).double()
            noise = 0.01 * torch.randn(20, generator=draw).double()
            scores = base if dose == 0 else base + 0.1 + noise
            found[plan[-1].name] = Scores(names, scores, scores, torch.full((20,), 0.1))
    records = by_dose(plan, found)
    assert "gain" not in records[0]["dice"]
    gain = records[1]["dice"]["gain"]
    assert gain["difference"] == pytest.approx(0.1, abs=0.005)
    low, high = gain["interval_95"]
    assert 0.09 < low < gain["difference"] < high < 0.11
    assert gain["over_seeds"]["n"] == 3
    assert gain["over_seeds"]["t_test_p"] < 0.01
    assert gain["over_seeds"]["hedges_g"] > 3
    assert re.fullmatch(r" \(over seeds p (<0.001|0\.00\d), Hedges' g \d+\.\d\d\)", in_words(gain["over_seeds"]))
    assert in_words(None) == ""
    assert "p <0.001" in in_words({"t_test_p": 1e-9, "hedges_g": 9.0, "interval_95": (1.0, 20.0)})
    assert gain["over_images"]["images"] == 30
    assert gain["over_images"]["permutation_p"] < 0.01
    assert records[1]["dice"]["std"] == pytest.approx(
        torch.tensor(records[1]["dice"]["per_seed"]).std().item(), rel=1e-5
    )


def test_test_images_that_are_trained_on_are_counted(real: Listed, synthetic: Listed) -> None:
    test = Listed([*phantoms(3, seed=11), *real.pairs[:2]])
    assert _seen_in_training({"real": real, "synthetic": synthetic}) == []
    said = _seen_in_training({"real": real, "synthetic": synthetic, "test": test})
    assert len(said) == 1
    assert said[0].startswith("2 of the 5 test images are among the real images")


def test_the_papers_doses() -> None:
    assert paper(1000, "polyps") == "73.8 ± 0.7 %"
    assert paper(0, "kits19") == "70.4 ± 2.9 %"
    assert paper(1450, "polyps") == "74.1 ± 0.8 %"
    assert paper(3933, "brisc") == "89.6 ± 0.4 %"  # its whole pool
    assert paper(5003, "kits19") == "73.2 ± 0.6 %"
    assert paper(7, "polyps") == paper(1450, "brisc") == paper(0, None) == ""


@pytest.fixture
def downstream(real: Listed, synthetic: Listed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    places = [written(real.pairs, tmp_path / "real"), written(synthetic.pairs, tmp_path / "synthetic")]

    def run(*words: str) -> tuple[int, str, str]:
        fast = ["--seeds", "0,1", "--doses", "0,4,8", "--size", "64", "--epochs", "1", "--batch", "8"]
        given = [*map(str, places), "--out", str(tmp_path / "study"), "--held-out", "0.2", "--device", "cpu"]
        code = main(["evaluate", "downstream", *given, *fast, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.slow
def test_a_study_runs_resumes_and_reports(downstream: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = downstream("--dataset", "polyps")
    assert code == 0, err
    assert out.count("synthetic images: Dice") == 3
    assert out.count("against none (over seeds p ") == 2
    found = json.loads((tmp_path / "study" / "downstream.json").read_text())
    assert [record["asked"] for record in found["doses"]] == [0, 4, 8]
    assert found["doses"][1]["dice"]["gain"]["over_images"]["images"] > 6
    page = (tmp_path / "study" / "downstream.html").read_text()
    assert "Dice by dose" in page
    assert "as many optimiser updates" in page
    table = (tmp_path / "study" / "table.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| 8 ")]
    assert rows
    assert "74.1" not in rows[0]  # no dose of ours is the paper's 1450
    assert "Real + ControlNet 72.3 ± 1.2 %" in table
    assert "drawn from one pool of 1450 images" in table
    assert {"method": "Real + LAW", "dice_percent": 74.1, "std": 0.8, "table": 4} in found["published"]
    assert found["protocol_differences"]
    # One cell is lost; the others are not trained again.
    lost = sorted((tmp_path / "study" / "scores").iterdir())[2]
    before = lost.read_text()
    lost.unlink()
    asked: list[str] = []
    scores = RegisteredTrainer.scores

    def counted(self: RegisteredTrainer, cell: Cell) -> Scores:
        asked.append(cell.name)
        return scores(self, cell)

    monkeypatch.setattr(RegisteredTrainer, "scores", counted)
    assert downstream("--dataset", "polyps")[0] == 0
    assert asked == [lost.stem]
    assert lost.read_text() == before
    assert json.loads((tmp_path / "study" / "downstream.json").read_text())["doses"] == found["doses"]
    code, _, err = downstream("--epochs", "2")
    assert code == 2
    assert "other settings" in err


def test_wrong_input_is_named(downstream: Run, tmp_path: Path) -> None:
    code, _, err = downstream("--model", "order_10")
    assert code == 2
    assert "did you mean 'order_0" in err or "did you mean 'order_1" in err
    code, _, err = downstream("--test", str(tmp_path / "real"))
    assert code == 2
    assert "same folder" in err
    code, out, _ = downstream("--dry-run")
    assert code == 0
    assert "2 seeds × 3 doses = 6 trainings" in out
    assert downstream_command.DOSES == (0, 250, 500, 1000, 1450)
    assert downstream_command.SEEDS == (0, 1, 2, 3, 4)
