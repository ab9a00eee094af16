"""The flag of `make typed` does check shapes, and every room it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRONG = """
import torch
from laworder.metrics.overlap import count

def test_wrong_type():
    count(torch.rand(1, 4), torch.ones(1, 4, dtype=torch.bool))
"""


def flag() -> str:
    match = re.search(r"^TYPED = (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert match
    return match[1]


@pytest.mark.parametrize(("with_flag", "message"), [(True, "TypeCheckError"), (False, "UserError")])
def test_the_flag_checks_annotations(tmp_path: Path, with_flag: bool, message: str) -> None:
    (tmp_path / "test_wrong.py").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *[flag()] * with_flag, "test_wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stdout


def test_the_rooms_named_exist() -> None:
    *rooms, checker = flag().partition("=")[2].split(",")
    assert checker == "beartype.beartype"
    assert all((ROOT / "src" / room.replace(".", "/")).is_dir() for room in rooms)
