"""SIGKILL at random moments of `seg train`, some inside a save; the same command again gives the same bits."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest

from laworder.cli import main
from laworder.runs import read_metrics, sha256_file

SMALL = ["phantom", "--size=32", "--phantom.count=12", "--batch=4", "--held-out=0.3", "--device=cpu", "--log=none"]
KINDS = {
    "plain": ["--epochs=14"],
    "averaged-in-parts-streamed": ["--epochs=14", "--optimiser.ema=0.9", "--accumulate=2", "--cache-gb=2e-5"],
    "ending-early": ["--epochs=60", "--patience=6", "--optimiser.lr=0.003", "--optimiser.ema=0.9"],
}
KILLS = 4  # for each kind


def start(folder: Path, kind: str) -> Any:
    """The command, forked from a process that has loaded what it imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "laworder.segmentation.train"])
    words = ["seg", "train", *SMALL, *KINDS[kind], f"--out={folder}"]
    process = context.Process(target=main, args=(words,))
    process.start()
    return process


def finish(folder: Path, kind: str) -> None:
    process = start(folder, kind)
    process.join(200)
    assert process.exitcode == 0


def contents(folder: Path) -> dict[str, str]:
    """Everything that must not depend on history: weights, optimiser state, losses, scores."""
    files = [folder / "metrics.jsonl", folder / "validation.csv", *sorted((folder / "checkpoints").glob("*"))]
    return {file.name: sha256_file(file) for file in files}


def kill(folder: Path, kind: str, chance: random.Random, lines: int) -> bool:
    """Kill at a random moment of the next few updates; False where it was done before."""
    process, log = start(folder, kind), folder / "metrics.jsonl"
    before = log.read_bytes().count(b"\n") if log.exists() else 0
    target = min(before, lines) + chance.randrange(0, max(1, lines // 2))
    inside = chance.random() < 0.5

    def reached() -> bool:
        written = log.read_bytes().count(b"\n") if log.exists() else 0
        saving = any((folder / "checkpoints").glob(".*.partial"))
        return written >= target and (saving or not inside)

    while process.is_alive() and not reached():
        time.sleep(0.0005)
    time.sleep(chance.random() * 0.01)
    process.kill()
    process.join(60)
    return process.exitcode == -9


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments_and_resumed_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    finish(whole, kind)
    lines = len(read_metrics(whole / "metrics.jsonl"))
    assert (lines < 60 * 2) if kind == "ending-early" else (lines == 28)
    chance, killed, within_save = random.Random(kind), 0, 0
    for number in range(KILLS):
        folder = tmp_path / f"cut{number}"
        for _ in range(1 + number % 2):  # some die twice
            killed += kill(folder, kind, chance, lines)
            within_save += any((folder / "checkpoints").glob(".*.partial"))
        finish(folder, kind)
        assert contents(folder) == contents(whole), f"kill {number}"
    assert killed >= KILLS


@pytest.mark.slow
def test_interrupted_by_a_signal_it_saves_and_goes_on(tmp_path: Path) -> None:
    finish(tmp_path / "whole", "plain")
    process, log = start(tmp_path / "cut", "plain"), tmp_path / "cut" / "metrics.jsonl"
    while process.is_alive() and not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        time.sleep(0.0005)
    process.terminate()
    process.join(60)
    assert process.exitcode == 143
    finish(tmp_path / "cut", "plain")
    # An extra checkpoint may stand where it stopped; what was computed is the same.
    one, other = (contents(tmp_path / name) for name in ("whole", "cut"))
    for name in ("metrics.jsonl", "validation.csv", "step-00000028.safetensors", "best.safetensors"):
        assert one[name] == other[name]
