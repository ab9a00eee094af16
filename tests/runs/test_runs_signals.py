"""Real signals to real processes: 143 and 130 after a save, and at once when told twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_run

from laworder.runs import read_manifest, read_metrics, sha256_file

STUBBORN = """
import sys, time
from laworder.runs import Run
with Run(sys.argv[1], config={}, kind="t", seeds={}):
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_whole_group_with_workers(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """As a terminal's Ctrl-C or a scheduler sends it: loader workers get it, too."""
    folder = tmp_path / "r"
    line = [sys.executable, toy_run.__file__, str(folder), "2", "2"]
    process = subprocess.Popen([*line, "--slow"], stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while not (folder / "metrics.jsonl").exists() or (folder / "metrics.jsonl").stat().st_size < 500:
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, number)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, told
    assert "Traceback" not in told
    manifest = read_manifest(folder)
    assert manifest.outcome == f"stopped by {number.name}"
    assert manifest.step == read_metrics(folder / "metrics.jsonl")[-1]["step"] < toy_run.STEPS
    subprocess.run(line, check=True)
    toy_run.main(str(tmp_path / "whole"), 2, 0)
    for name in ("metrics.jsonl", f"checkpoints/step-{toy_run.STEPS:08d}.safetensors", "checkpoints/best.safetensors"):
        assert sha256_file(folder / name) == sha256_file(tmp_path / "whole" / name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_kills_at_once(number: signal.Signals, tmp_path: Path) -> None:
    line = [sys.executable, "-c", STUBBORN, str(tmp_path / "r")]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(number)
        process.stderr.readline()
        assert "kills at once" in process.stderr.readline()
        assert process.poll() is None, "the first one only asks"
        process.send_signal(number)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == -number
    assert read_manifest(tmp_path / "r").outcome == "running"
