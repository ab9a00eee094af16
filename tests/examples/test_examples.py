"""Every file under examples/ runs as a user would run it."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

slow = pytest.mark.slow
RUNS = [
    pytest.param("plain_pytorch.py", [], id="plain"),
    pytest.param("diffusers_controlnet.py", [], id="sd", marks=slow),
    pytest.param("diffusers_controlnet.py", ["--model", "sdxl", "--prediction", "v_prediction"], id="sdxl", marks=slow),
    pytest.param("diffusers_flow.py", ["--weighting", "min_snr"], id="flow", marks=slow),
    pytest.param("monai_3d.py", [], id="monai", marks=slow),
]


def run(name: str, arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--steps", "2", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "arguments"), RUNS)
def test_example_runs(name: str, arguments: list[str]) -> None:
    losses = re.findall(r"^step (\d): loss (\S+)", run(name, arguments), flags=re.MULTILINE)
    assert [step for step, _ in losses] == ["0", "1"]
    assert all(math.isfinite(float(loss)) for _, loss in losses)


def test_strip_is_written(tmp_path: Path) -> None:
    path = tmp_path / "delta.png"
    run("plain_pytorch.py", ["--strip", str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_example_is_forgotten() -> None:
    tested = {str(p.values[0]) for p in RUNS}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
