"""manifest.json, config comparison, reproduction."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from laworder import __version__
from laworder.errors import UserError
from laworder.runs import Manifest, Run, read_manifest, reproduction
from laworder.runs.manifest import check_same_run, differences, git_state, jsonable


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    rate: float = 1e-3
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Config:
    out: Path
    inner: Inner
    colour: Colour = Colour.RED
    name: str | None = None


def manifest(**changed: Any) -> Manifest:
    fields = {"kind": "t", "command": ["x"], "config": {"a": {"b": 1, "c": 2}, "steps": 5}, "seeds": {"seed": 0}}
    return Manifest(**{**fields, "data": {"d": "1"}, "device": {"type": "cpu"}, **changed})


def test_any_config_becomes_json() -> None:
    found = jsonable(Config(out=Path("a/b"), inner=Inner()))
    assert found == {"out": "a/b", "inner": {"rate": 1e-3, "sizes": [1, 2]}, "colour": "red", "name": None}
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(UserError, match="cannot hold a set"):
        jsonable({"a": {1}})


def test_a_run_writes_everything_that_is_asked_for(tmp_path: Path) -> None:
    config = Config(out=tmp_path, inner=Inner())
    with Run(tmp_path / "r", config=config, kind="seg train", seeds={"seed": 3}, data={"polyps": "abc"}) as run:
        early = json.loads((run.folder / "manifest.json").read_text())
    assert early["outcome"] == "running"
    assert early["ended"] is None
    late = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert late["outcome"] == "done"
    assert late["started"] <= late["ended"]
    assert late["config"]["inner"] == {"rate": 1e-3, "sizes": [1, 2]}
    assert (late["seeds"], late["data"], late["kind"]) == ({"seed": 3}, {"polyps": "abc"}, "seg train")
    assert late["versions"]["laworder"] == __version__
    assert {"python", "torch", "numpy", "safetensors"} <= set(late["versions"])
    assert late["device"]["type"] == "cpu"
    assert late["device"]["threads"] >= 1
    assert late["command"][1:] == sys.argv[1:]
    assert "/" not in late["command"][0]
    assert late["resumptions"] == []
    assert "git" in late


def test_the_commit_of_a_checkout_and_of_no_checkout(tmp_path: Path) -> None:
    """None, untracked in somebody's checkout, committed, changed."""

    def git(*arguments: str) -> str:
        line = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    ours = tmp_path / "package" / "manifest.py"
    ours.parent.mkdir()
    ours.write_text("1")
    assert git_state(ours) is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "theirs")
    assert git_state(ours) is None
    git("add", ".")
    git("commit", "-q", "-m", "ours")
    assert git_state(ours) == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    ours.write_text("2")
    assert git_state(ours) == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state() is None


def test_differences_are_dotted() -> None:
    old, new = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4}
    assert differences(old, new) == {"a.c": (2, 5), "d": (3, "(absent)"), "e": ("(absent)", 4)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": {"a": {"b": 1, "c": 3}, "steps": 5}}, r"a\.c was 2 and is now 3"),
        ({"config": {"a": {"b": 1, "c": 2}, "steps": 4}}, "steps was 5 and is now 4"),
        ({"seeds": {"seed": 1}}, "seed seed was 0 and is now 1"),
        ({"data": {"d": "2"}}, "data d was '1' and is now '2'"),
        ({"kind": "u"}, "kind was 't' and is now 'u'"),
    ],
)
def test_another_run_is_refused_with_the_keys(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        check_same_run(manifest(), manifest(**change), tmp_path, may_grow=("steps",), may_change=("a.b",))


def test_what_may_change_and_grow(tmp_path: Path) -> None:
    new = manifest(config={"a": {"b": 9, "c": 2}, "steps": 6})
    changed = check_same_run(manifest(), new, tmp_path, may_grow=("steps",), may_change=("a.b",))
    assert changed == {"a.b": (1, 9), "steps": (5, 6)}


def test_no_manifest_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        read_manifest(tmp_path)
    for content in ("{", "[]", '{"kind": "x"}', '{"unknown": 1}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(UserError, match="damaged or was written by another version"):
            read_manifest(tmp_path)


def test_reproduction_gives_back_what_ran_and_says_what_differs(tmp_path: Path) -> None:
    manifest(command=["laworder", "seg", "train"]).write(tmp_path)
    again = reproduction(tmp_path)
    assert (again.kind, again.command, again.seeds) == ("t", ["laworder", "seg", "train"], {"seed": 0})
    assert again.config == {"a": {"b": 1, "c": 2}, "steps": 5}
    assert again.differs == []
    other = manifest(git={"commit": "f" * 40, "dirty": True}, resumptions=[{}])
    other.versions["torch"] = "1.0"
    other.versions["gone"] = "2.0"
    other.write(tmp_path)
    told = "\n".join(reproduction(tmp_path).differs)
    assert "torch was 1.0, is 2" in told
    assert "gone was 2.0, is not installed" in told
    assert "the code was commit ffffffffffff with changes" in told
    assert "resumed 1 times" in told
