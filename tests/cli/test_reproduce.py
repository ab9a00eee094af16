"""`laworder reproduce`: equal to the bit, or the first difference in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laworder.cli import main

RUN = ["seg", "train", "phantom", "--size=32", "--epochs=2", "--batch=4", "--held-out=0.3", "--phantom.count=12"]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    assert main([*RUN, "--device=cpu", "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_a_run_is_reproduced_to_the_bit(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(finished)]) == 0
    again = finished.with_name("run-again")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{again} equals {finished}: every logged number and every weight"
    )
    assert (again / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()


def test_differences_are_said(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    manifest["config"]["optimiser"]["lr"] = 0.01
    manifest["versions"]["torch"] = "1.0"
    (finished / "manifest.json").write_text(json.dumps(manifest))
    assert main(["reproduce", str(finished), "--out", str(finished.with_name("other"))]) == 1
    out, err = capsys.readouterr()
    assert "mind: torch was 1.0" in err
    assert "step 1 is the first that differs, in lr" in out
    assert "tensors differ, first model." in out


def test_unfinished_and_foreign_folders_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    manifest["outcome"] = "stopped by SIGTERM"
    (finished / "manifest.json").write_text(json.dumps(manifest))
    assert main(["reproduce", str(finished)]) == 2
    assert "is not finished" in capsys.readouterr().err
    assert main(["reproduce", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_plan_is_told(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(finished), "--dry-run"]) == 0
    assert "compare every logged number" in capsys.readouterr().out
    assert not finished.with_name("run-again").exists()
