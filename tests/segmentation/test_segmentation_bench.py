"""`laworder seg bench`: every backend does the same work, and says how far it is from PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from laworder.cli import main
from laworder.segmentation.bench.command import table
from laworder.segmentation.bench.timing import Timing


@pytest.mark.slow
def test_the_backends_side_by_side(tmp_path: Path) -> None:
    words = ["--size", "64", "--batch", "2", "--threads", "1", "--seconds", "0.05", "--out", str(tmp_path / "b.json")]
    # In a process of its own, as users call it: three runtimes with their own threads, and settings of torch's.
    line = [sys.executable, "-m", "laworder", "seg", "bench", "order_backbone", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "b.json").read_text())
    names = {found["name"] for found in record["backends"]}
    assert len(names) == len(record["backends"]) == 9
    for found in record["backends"]:
        low, high = found["quartiles_ms"]
        assert found["fastest_ms"] <= low <= found["median_ms"] <= high
        assert found["images_per_second"] == pytest.approx(2000 / found["median_ms"])
        if found["precision"] == "f32":
            assert found["largest_difference"] < 1e-4
    assert all(name in done.stdout for name in names)


def test_the_fastest_is_in_bold() -> None:
    rows = [
        Timing(name, "f32", ms, (ms, ms), ms, 1000 / ms, 3, None, 1e-6, 1.0) for name, ms in (("a", 4.0), ("b", 2.0))
    ]
    text = table(rows, "title")
    assert "| **b** | f32 | 2.00 |" in text
    assert "| a | f32 | 4.00 |" in text


# A process of its own: this one may have room left from earlier tests, whose memory it keeps (`laworder.runs.memory`).
WORK = """
from laworder.segmentation.bench.timing import peak_memory, reset_peak
before = reset_peak()
held = bytearray(200_000_000)
held[::4096] = b"x" * len(held[::4096])
del held
print(None if before is None else peak_memory() - before)
"""


def test_memory_is_that_of_the_work_alone() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], check=True, capture_output=True, text=True)
    if done.stdout.strip() == "None":  # not Linux: the column stays empty
        return
    assert 190e6 < int(done.stdout) < 300e6


def test_an_exported_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seg", "bench", str(tmp_path / "a.onnx"), "--out", str(tmp_path / "b.json")]) == 2
    assert "is an exported file already" in capsys.readouterr().err
