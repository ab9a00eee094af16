"""The best, the median and the worst picture of an evaluation: those, and nobody's choice."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from laworder.cli import main
from laworder.errors import UserError
from laworder.paper import segmentation
from laworder.paper.cases import RESULT, Scored, picked, read_cases, scores
from laworder.paper.store import result
from laworder.paper.study import Options, Study

HEAD = "name,subset,lesion_fraction,dice\n"
SHORT = {"epochs": 3, "optimiser.warmup": 2, "phantom.count": 30, "size": 32, "validate_every": 1}


def test_ties_go_by_name_and_the_median_is_one_of_the_pictures() -> None:
    found = [Scored("d", 0.2), Scored("b", 0.9), Scored("a", 0.9), Scored("c", 0.2), Scored("e", 0.5), Scored("f", 0.6)]
    assert {which: one.name for which, one in picked(found).items()} == {"best": "a", "median": "f", "worst": "c"}
    assert {one.name for one in picked([Scored("only", 0.1)]).values()} == {"only"}


def test_pictures_without_a_lesion_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "images.csv"
    path.write_text(HEAD + "empty,all,0.0,1.0\nsmall,all,0.01,0.3\n")
    assert scores(path) == [Scored("small", 0.3)]
    path.write_text(HEAD + "empty,all,0.0,1.0\n")
    with pytest.raises(UserError, match="no picture with a lesion was judged"):
        scores(path)
    path.write_text("name\nx\n")
    with pytest.raises(UserError, match="not the scores of `seg evaluate`"):
        scores(path)


@pytest.mark.slow
def test_they_are_drawn_from_the_runs_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentation, "DEMO", {**segmentation.DEMO, **SHORT})
    told = ["--out", str(tmp_path), "--device", "cpu", "--seeds", "0"]
    assert main(["paper", "run", "cases", *told]) == 0
    study = Study(Options(out=tmp_path, device="cpu", seeds="0"))
    steps = study.plan("cases")
    assert {step.status.state for step in steps} == {"done"}
    assert sorted(step.one.job.command for step in steps) == ["cases", "seg evaluate", "seg train"]
    for one in (step.one for step in steps if step.one.job.command == "cases"):
        best, median, worst = read_cases(one.out, result(one, RESULT))
        assert best.dice >= median.dice >= worst.dice
        (judged,) = [need for need in one.needs if need.job.command == "seg evaluate"]
        rows = list(csv.DictReader((judged.out / "images.csv").read_text().splitlines()))
        lesions = [float(row["dice"]) for row in rows if float(row["lesion_fraction"]) > 0]
        assert (best.dice, worst.dice, best.among) == (max(lesions), min(lesions), len(lesions))
        for case in (best, median, worst):
            both = 2 * np.logical_and(case.truth, case.prediction).sum()
            again = both / (case.truth.sum() + case.prediction.sum())
            assert again == pytest.approx(case.dice, abs=1e-5)  # what is shown is what was judged
    assert main(["paper", "figure", "cases", *told]) == 0
    assert (tmp_path / "figures" / "cases-demo.png").is_file()
