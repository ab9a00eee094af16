"""A killed `synth train` goes on to the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from training import SMALL, kept, settings, trained_prior

from laworder.diffusion.task import DiffuseTask
from laworder.diffusion.train import train
from laworder.runs import Checkpoints

KILLS = 4


def words(out: Path, **more: Any) -> list[str]:
    values = {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}, "out": out}
    flags = [f"--set={key}={value}" for key, value in values.items() if key != "data"]
    return ["-m", "laworder", "synth", "train", "phantom", *flags]


def same(one: Any, other: Any) -> bool:
    """Whether two states hold the same bits."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["law", "distillation"])
def test_a_run_killed_at_random_moments_ends_in_the_same_bits(tmp_path: Path, objective: str) -> None:
    """SIGKILL without warning, in the middle of updates, looks and saves; then the same command."""
    more = {"objective": objective, "steps": 24, "save_every": 3, "accumulate": 2, "flips": "hv", "watch__every": 6}
    prior = trained_prior(tmp_path / "prior", steps=1)
    train(settings(out=tmp_path / "whole", prior=prior, **more))
    command = [sys.executable, *words(tmp_path / "cut", prior=prior, **more)]
    draw, log, killed = random.Random(objective), tmp_path / "cut" / "metrics.jsonl", 0
    for kill in range(KILLS):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_lines(log, kill + 1, child)
        time.sleep(draw.random() * 0.3)
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
    subprocess.run(command, check=True, capture_output=True)
    assert killed >= KILLS - 2, "the run was over before it could be killed"
    one, other = (Checkpoints(tmp_path / name / "checkpoints").latest() for name in ("whole", "cut"))
    assert one is not None
    assert other is not None
    assert same(one.state, other.state)
    for name in ("metrics.jsonl", "training.json", "model/controlnet/diffusion_pytorch_model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    sheets = [sorted((tmp_path / name / "looks").iterdir()) for name in ("whole", "cut")]
    assert [s.read_bytes() for s in sheets[0]] == [s.read_bytes() for s in sheets[1]]


def wait_for_lines(log: Path, lines: int, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        if log.exists() and log.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.01)


def test_cut_after_an_update_it_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(settings(out=tmp_path / "whole", save_every=1))
    after = DiffuseTask.after_step

    def cut(self: DiffuseTask, step: int) -> None:
        after(self, step)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DiffuseTask, "after_step", cut)
        with pytest.raises(KeyboardInterrupt):
            train(settings(out=tmp_path / "cut", save_every=1))
    train(settings(out=tmp_path / "cut", save_every=1))
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == (tmp_path / "cut" / "metrics.jsonl").read_bytes()
    one, other = (kept(tmp_path / name) for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
