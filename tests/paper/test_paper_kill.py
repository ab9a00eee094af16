"""A study killed at any moment and started again ends as the one that was left alone, no run done twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_study

from laworder.paper.cells import cells
from laworder.paper.running import carry_out
from laworder.paper.setting import Setting


def values(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("value.json"))}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_study_on_ray_has_the_cells_of_one_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    here, there, setting = tmp_path / "here", tmp_path / "there", Setting(seeds=(0, 1))
    for root, place in ((here, "local"), (there, "ray")):
        outcomes = carry_out(toy_study.plan(root, setting), "cpu", on=place, patience=60)
        assert len(outcomes) == 14
        assert {outcome.state for outcome in outcomes.values()} == {"done"}
    assert values(there) == values(here)
    found = [
        [cell.values for row in cells(toy_study.table(), setting, toy_study.resolver(root)) for cell in row]
        for root in (here, there)
    ]
    assert found[0] == found[1]
    assert all(path.read_text() == "finished\n" for path in there.rglob("finished.log"))


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    command = [sys.executable, toy_study.__file__]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True, timeout=120)
    draw, kills = random.Random(0), 0
    for _ in range(5):
        child = subprocess.Popen([*command, str(tmp_path / "killed")], stderr=subprocess.PIPE)
        assert child.stderr is not None
        child.stderr.readline()  # the first run has ended: the study is under way
        time.sleep(draw.uniform(0.0, 0.25))
        child.kill()
        kills += child.wait() == -9
        child.stderr.close()
    assert kills >= 2
    again = subprocess.run([*command, str(tmp_path / "killed")], check=False, capture_output=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert values(tmp_path / "killed") == values(tmp_path / "whole")
    assert len(values(tmp_path / "killed")) == 14
    plan = toy_study.plan(tmp_path / "killed", Setting(seeds=(0, 1)), pause=0.02)
    assert {step.status.state for step in plan} == {"done"}
