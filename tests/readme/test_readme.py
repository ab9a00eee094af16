"""The README's blocks do what they say: each is run in a copy of the checkout, in a path with a space.

The copy uses the environment that runs this test, so `make` skips its set-up step; .ci/run takes that step for real.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tools", "Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
BLOCK = re.compile(r"(?:<!-- test: (?P<mark>[^\n]*) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)```", re.DOTALL)
KINDS = ("console", "python")


@dataclass(frozen=True)
class Block:
    number: int
    kind: str
    text: str
    mark: str

    def commands(self) -> list[list[str]]:
        if self.kind == "python":
            return [[sys.executable, "-c", self.text]]
        return [
            ["bash", "-euo", "pipefail", "-c", line[2:]] for line in self.text.splitlines() if line.startswith("$ ")
        ]


def blocks() -> Iterator[Block]:
    for number, match in enumerate(BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8")), start=1):
        yield Block(number, match["kind"], match["text"], match["mark"] or "")


def to_run() -> Iterator[object]:
    for block in blocks():
        if not block.mark.startswith("no, "):
            first = block.text.strip().splitlines()[0]
            marks = [pytest.mark.slow] if block.mark == "slow" else []
            yield pytest.param(block, id=f"{block.number}: {first}", marks=marks)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what a clone holds and the README uses, with this environment as its `.venv`."""
    target = tmp_path / "a clone"
    target.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)
    (target / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    return target


def environment(clone: Path) -> dict[str, str]:
    path = os.pathsep.join([str(clone / ".venv" / "bin"), os.environ.get("PATH", "")])
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return {**inherited, "PATH": path, "PYTHONPATH": str(clone / "src"), "BOOTSTRAP": "true", "COLUMNS": "120"}


def run(command: list[str], clone: Path) -> str:
    done = subprocess.run(
        command, cwd=clone, env=environment(clone), capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("block", list(to_run()))
def test_block_runs(block: Block, clone: Path) -> None:
    for command in block.commands():
        output = run(command, clone)
        assert "Traceback" not in output
        if "make demo" in command[-1]:
            pages = [page for page in clone.rglob("*.html") if clone / ".venv" not in page.parents]
            assert [page for page in pages if page.name in output], "the demo ends by naming its report"


def test_every_block_is_of_a_kind_that_is_run_or_says_why_not() -> None:
    found = list(blocks())
    assert found
    assert {block.kind for block in found} <= set(KINDS)
    assert all(block.mark in ("", "slow") or re.match(r"no, \w+", block.mark) for block in found)
    assert all(block.commands() for block in found), "a console block has lines that start with `$ `"


def test_the_two_commands_are_there() -> None:
    lines = [line for block in blocks() for line in block.text.splitlines()]
    assert {"$ make demo", "$ make test"} <= set(lines)


def test_every_target_that_the_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for words in re.findall(r"\bmake ((?:[a-z]+ ?)+)`", text) for word in words.split()}
    assert {"docs", "lint", "typed"} <= targets
    assert targets <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_files_that_the_readme_links_to_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{name} links to {target}"
