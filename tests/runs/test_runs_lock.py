"""One process in a run: refused with pid and host, taken over from the dead, free of races."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lock_child
import pytest

from laworder.runs import Lock, LockedError
from laworder.runs.lock import Holder, began_by_ps, process_began

HOLD = """
import sys, time
from laworder.runs import Lock, LockedError
try:
    with Lock(sys.argv[1]):
        print("in", flush=True)
        time.sleep(float(sys.argv[2]))
except LockedError as error:
    print(error, flush=True)
"""


def hold(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True)


def say(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def written(folder: Path) -> str:
    return (folder / "lock").read_text()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_process_is_refused_and_told_who_holds_it_and_a_kill_frees_it(tmp_path: Path) -> None:
    first = hold(tmp_path, 60)
    try:
        assert say(first) == "in"
        with (
            pytest.raises(LockedError, match=f"in use by process {first.pid} on {socket.gethostname()}"),
            Lock(tmp_path),
        ):
            pass
    finally:
        end(first)
    assert json.loads(written(tmp_path))["pid"] == first.pid, "a killed process cleans nothing up"
    with Lock(tmp_path):
        assert json.loads(written(tmp_path))["pid"] == os.getpid()
    assert written(tmp_path) == ""


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with Lock(tmp_path):
        with pytest.raises(LockedError, match="this process"), Lock(tmp_path / "." / ""):
            pass
        other = hold(tmp_path, 0)
        assert "in use by process" in say(other)
        end(other)
    with Lock(tmp_path):
        pass


def start(target: Callable[..., None], *arguments: Any) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "laworder.runs"])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def test_of_eight_that_race_one_gets_in(tmp_path: Path) -> None:
    """Over a stale lock, where a race would let two of them take over."""
    (tmp_path / "lock").write_text(json.dumps(asdict(Holder(dead_pid(), socket.gethostname(), "x:1"))))
    rivals, pipes = [], []
    for _ in range(8):
        here, there = multiprocessing.Pipe()
        rivals.append(start(lock_child.hold, str(tmp_path), there))
        pipes.append(here)
    try:
        assert all(pipe.recv() == "ready" for pipe in pipes)
        for pipe in pipes:
            pipe.send("go")
        said = [pipe.recv() for pipe in pipes]
    finally:
        for rival in rivals:
            rival.kill()
            rival.join()
    assert said.count("in") == 1
    winner = rivals[said.index("in")].pid
    refused = [line for line in said if line != "in"]
    assert all(f"is in use by process {winner} on " in line for line in refused)


def test_two_that_race_again_and_again(tmp_path: Path) -> None:
    """Each inside 50 times, never both at once."""
    rivals = [start(lock_child.rounds, str(tmp_path), 50) for _ in range(2)]
    for rival in rivals:
        rival.join(90)
        rival.kill()
    assert [rival.exitcode for rival in rivals] == [0, 0]


def test_a_pid_that_now_belongs_to_somebody_else_is_no_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(json.dumps(asdict(Holder(os.getppid(), socket.gethostname(), "another boot:1"))))
    with Lock(tmp_path):
        pass


def test_a_living_holder_is_respected_where_locks_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = process_began(os.getppid())
    assert began is not None
    (tmp_path / "lock").write_text(json.dumps(asdict(Holder(os.getppid(), socket.gethostname(), began))))
    monkeypatch.setattr(fcntl, "lockf", lambda *_: None)
    with pytest.raises(LockedError, match=f"process {os.getppid()} on"), Lock(tmp_path):
        pass


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", none)
    with Lock(tmp_path):
        assert json.loads(written(tmp_path))["pid"] == os.getpid()
    assert "relying on the pid" in caplog.text


def test_a_lock_of_another_host_is_respected_with_advice(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(json.dumps(asdict(Holder(os.getpid(), "elsewhere", "x:1"))))
    with pytest.raises(LockedError, match=r"on elsewhere, .*if that process is gone, remove .*lock"), Lock(tmp_path):
        pass
    (tmp_path / "lock").unlink()
    with Lock(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_lock_file_is_taken_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(content)
    with Lock(tmp_path):
        pass


def test_when_a_process_began() -> None:
    mine = process_began(os.getpid())
    assert mine is not None
    assert mine == process_began(os.getpid())
    assert process_began(os.getppid()) is not None
    assert process_began(dead_pid()) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert process_began(zombie.pid) is None


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps on this system")
def test_when_a_process_began_without_proc() -> None:
    assert began_by_ps(os.getpid()) == began_by_ps(os.getpid())
    assert str(time.localtime().tm_year) in str(began_by_ps(os.getpid()))
    assert began_by_ps(dead_pid()) is None
