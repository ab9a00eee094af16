"""`seg train` under `torchrun` and `accelerate launch`: what one process computes, shared out over two."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from launchers import accelerate, torchrun
from laworder.runs import Checkpoints, read_manifest, read_metrics

SMALL = ["-m", "laworder", "seg", "train", "phantom", "--size=64", "--phantom.count=20", "--batch=8", "--epochs=4"]
SMALL += [
    "--held-out=0.3",
    "--device=cpu",
    "--optimiser.lr=2e-5",
    "--optimiser.ema=0.9",
    "--optimiser.clip=1",
    "--optimiser.warmup=3",
]
ALONE = [sys.executable]


def run(launcher: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*launcher, *SMALL, *more], capture_output=True, text=True, timeout=200)


def finish(launcher: list[str], folder: Path, *more: str) -> str:
    done = run(launcher, f"--out={folder}", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same(one: Path, other: Path) -> None:
    """Losses and scores to 1e-5, rates exactly, and as many lines."""
    ours, theirs = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert len(ours) == len(theirs) > 5
    for mine, yours in zip(ours, theirs, strict=True):
        assert (mine["step"], mine["lr"]) == (yours["step"], yours["lr"])
        assert mine.keys() == yours.keys()
        for name in mine.keys() - {"step", "lr"}:  # a gradient's norm amplifies rounding
            if name != "grad_norm" or mine["step"] == 1:
                assert yours[name] == pytest.approx(mine[name], rel=1e-3 if name == "grad_norm" else 1e-5), name
    a, b = (Checkpoints(folder / "checkpoints").latest() for folder in (one, other))
    assert a is not None
    assert b is not None
    for kind, state in a.state["modules"].items():
        for name, tensor in state.items():
            torch.testing.assert_close(b.state["modules"][kind][name].float(), tensor.float(), rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--accumulate=2",)], ids=["whole", "in-parts"])
def test_two_processes_get_the_losses_of_one(more: tuple[str, ...], tmp_path: Path) -> None:
    # In parts, batch norm sees the part: two processes with parts of 2 + 2 images equal one with parts of 4.
    finish(ALONE, tmp_path / "one", *more)
    said = finish(torchrun(), tmp_path / "two", *more)
    assert_same(tmp_path / "one", tmp_path / "two")
    assert said.count("Dice 0.") == 1  # only the first process speaks
    assert len(list((tmp_path / "two" / "tensorboard").glob("events.*"))) == 1  # and writes


@pytest.mark.slow
def test_accelerate_launch_is_the_same_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    finish(ALONE, tmp_path / "one")
    words = [*accelerate(), *SMALL, f"--out={tmp_path / 'two'}"]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "two" / "metrics.jsonl"
    while child.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        time.sleep(0.001)
    time.sleep(random.Random(0).random() * 0.02)
    for line in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
        subprocess.run(["kill", "-9", line], check=False)
    assert child.wait(60) != 0
    done = len(read_metrics(log))
    assert done < len(read_metrics(tmp_path / "one" / "metrics.jsonl"))
    finish(accelerate(), tmp_path / "two")
    assert_same(tmp_path / "one", tmp_path / "two")
    assert len(read_manifest(tmp_path / "two").resumptions) == 1
    last = Checkpoints(tmp_path / "two" / "checkpoints").latest()
    assert last is not None
    assert last.state["loop"]["world"] == 2, "accelerate started two processes, not one"


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    done = run(torchrun(), f"--out={tmp_path / 'run'}", "--batch=5")
    assert done.returncode != 0
    assert "batch: 5 images cannot be shared out evenly over 2 processes; use a multiple of that" in done.stderr
    assert not (tmp_path / "run").exists()
