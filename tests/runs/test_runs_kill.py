"""SIGKILL at 20 random moments, some inside a save; then the same command again: bit-identical, 20 of 20."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import toy_run

from laworder.runs import read_metrics, sha256_file

COMBINATIONS = [(1, 0), (1, 2), (2, 0), (2, 2)]
KILLS = 5  # for each combination


class Child:
    """The toy training in a process of its own: a fork of one that has loaded torch, or the real command."""

    def __init__(self, folder: Path, accumulate: int, workers: int, *, command: bool) -> None:
        arguments = (str(folder), accumulate, workers)
        if command:
            line = [sys.executable, toy_run.__file__, *map(str, arguments), "--slow"]
            self._process: Any = subprocess.Popen(line, stderr=subprocess.PIPE)
        else:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["torch._dynamo", "laworder.runs"])
            self._process = context.Process(target=toy_run.main, args=(*arguments, True))
            self._process.start()

    def wait(self) -> int:
        if isinstance(self._process, subprocess.Popen):
            self._process.communicate(timeout=120)
            return self._process.returncode
        self._process.join(120)
        return self._process.exitcode

    def running(self) -> bool:
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process.is_alive()

    def kill(self) -> int:
        self._process.kill()
        return self.wait()


def contents(folder: Path) -> dict[str, str]:
    """Everything that must not depend on history: log, weights, optimiser state, best."""
    files = [folder / "metrics.jsonl", *sorted((folder / "checkpoints").glob("*"))]
    return {file.name: sha256_file(file) for file in files}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, str]]:
    """The uninterrupted runs. Workers change nothing, so that they serve for 0 and for 2 of them."""
    found = {}
    for accumulate in (1, 2):
        both = []
        for workers in (0, 2):
            folder = tmp_path_factory.mktemp("whole") / "run"
            assert Child(folder, accumulate, workers, command=False).wait() == 0
            both.append(contents(folder))
            assert [line["step"] for line in read_metrics(folder / "metrics.jsonl")] == list(range(1, 25))
        assert both[0] == both[1]
        assert {"step-00000024.safetensors", "best.safetensors"} <= set(both[0])
        found[accumulate] = both[0]
    assert found[1] != found[2]
    return found


def wait_for_moment(child: Child, folder: Path, chance: random.Random, *, inside: bool) -> None:
    """Some time after a random line of the log, or after a random save has begun."""
    target, log = chance.randrange(0, 20), folder / "metrics.jsonl"

    def reached() -> bool:
        if inside:
            return any(int(p.name[6:14]) >= target for p in (folder / "checkpoints").glob(".step-*.partial"))
        return log.exists() and log.read_bytes().count(b"\n") >= target

    while child.running() and not reached():
        time.sleep(0.0005)
    time.sleep(chance.random() * (0.005 if inside else 0.03))


def interrupt(child: Child, folder: Path, chance: random.Random, *, inside: bool) -> bool:
    """Kill; False where the child was done before."""
    wait_for_moment(child, folder, chance, inside=inside)
    return child.kill() == -9


@pytest.mark.slow
@pytest.mark.parametrize(("accumulate", "workers"), COMBINATIONS)
def test_killed_at_random_moments_then_resumed_to_the_same_bits(
    accumulate: int, workers: int, reference: dict[int, dict[str, str]], tmp_path: Path
) -> None:
    within_save = 0
    for number in range(KILLS):
        chance = random.Random(f"{accumulate}/{workers}/{number}")
        command = number == 0  # python toy_run.py …; the others are forked, which saves the import of torch
        for attempt in range(10):
            folder = tmp_path / f"{number}-{attempt}"
            child = Child(folder, accumulate, workers, command=command)
            if interrupt(child, folder, chance, inside=number % 2 == 0):
                break
        else:
            pytest.fail("the child was never caught running")
        within_save += any(folder.glob("checkpoints/.*.partial"))
        assert Child(folder, accumulate, workers, command=command).wait() == 0
        assert contents(folder) == reference[accumulate], f"kill {number}"
        assert not list(folder.rglob("*.partial"))
    assert within_save >= 1, "no kill hit a save"


@pytest.mark.slow
def test_killed_again_and_again(reference: dict[int, dict[str, str]], tmp_path: Path) -> None:
    """One run that dies four times, once before it has saved anything, with a changing number of workers."""
    chance = random.Random(1)
    for number, after in enumerate((0, 6, 11, 19)):
        child = Child(tmp_path / "run", 2, 2 * (number % 2), command=False)
        log = tmp_path / "run" / "metrics.jsonl"
        while not (log.exists() and log.read_bytes().count(b"\n") > after):
            time.sleep(0.0005)
        time.sleep(chance.random() * 0.01)
        assert child.kill() == -9
    assert Child(tmp_path / "run", 2, 0, command=False).wait() == 0
    assert contents(tmp_path / "run") == reference[2]
