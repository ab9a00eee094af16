"""tools/check_files.py names file and line of what it refuses, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_files.py"


def check(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHECK), str(path)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("data", [b"", b"text\n", b"\0binary", b"a\n\nb\n"])
def test_good_files_pass(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a file.txt"
    path.write_bytes(data)
    done = check(path)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"text", "exactly one newline"),
        (b"text\n\n", "exactly one newline"),
        (b"a\nb \n", ":2: trailing space"),
        (b"a\r\n", ":1: trailing space"),
        (b"a\n<<<<<<< ours\n", ":2: a merge mark"),
        (b"\0" * (513 * 1024), "513 KiB"),
    ],
)
def test_faults_are_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a file.txt"
    path.write_bytes(data)
    done = check(path)
    assert done.returncode == 1
    assert "a file.txt" in done.stdout
    assert said in done.stdout
    assert path.read_bytes() == data
