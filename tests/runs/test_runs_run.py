"""Run: the folder, its life from start to end, resumptions, what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import toy_run
from tqdm import tqdm

from laworder.errors import UserError
from laworder.runs import LockedError, Run, read_manifest


def run(folder: Path, **changed: Any) -> Run:
    return Run(folder, **{"config": {"steps": 3, "rate": 0.1}, "kind": "t", "seeds": {"seed": 0}, **changed})


def outcome(folder: Path) -> str:
    return read_manifest(folder).outcome


def test_its_folder_is_made_with_parents_and_locked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with run(folder) as one:
        assert one.folder == folder
        assert (folder / "checkpoints").is_dir()
        with pytest.raises(LockedError), run(folder):
            pass
    assert outcome(folder) == "done"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UserError("no such file"), "failed: UserError: no such file"),
        (KeyboardInterrupt(), "stopped by SIGINT"),
        (SystemExit(3), "failed: exit 3"),
    ],
)
def test_how_it_ended(error: BaseException, told: str, tmp_path: Path) -> None:
    with pytest.raises(type(error)), run(tmp_path / "r"):
        raise error
    assert outcome(tmp_path / "r") == told
    assert read_manifest(tmp_path / "r").ended is not None


def test_a_finished_run_says_so_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run(tmp_path / "r"):
        pass
    before = (tmp_path / "r" / "manifest.json").read_bytes()
    with caplog.at_level(logging.INFO), run(tmp_path / "r") as again:
        assert again.finished
    assert "there is nothing to do" in caplog.text
    assert (tmp_path / "r" / "manifest.json").read_bytes() == before


def test_a_finished_run_that_may_grow_goes_on(tmp_path: Path) -> None:
    with run(tmp_path / "r"):
        pass
    with run(tmp_path / "r", config={"steps": 5, "rate": 0.1}, may_grow=("steps",)) as again:
        assert not again.finished
        assert outcome(again.folder) == "running"
    manifest = read_manifest(tmp_path / "r")
    assert manifest.config["steps"] == 5
    assert manifest.resumptions[0]["changed"] == {"steps": [3, 5]}
    assert manifest.resumptions[0]["after"] == "done"


def test_resumptions_are_noted_with_what_differed(tmp_path: Path) -> None:
    with pytest.raises(UserError), run(tmp_path / "r", command=["a"]):
        raise UserError("x")
    manifest = read_manifest(tmp_path / "r")
    manifest.outcome, manifest.ended = "running", None  # as a killed one leaves it
    manifest.versions["torch"] = "1.0"
    manifest.write(tmp_path / "r")
    with run(tmp_path / "r", command=["b"]):
        pass
    manifest = read_manifest(tmp_path / "r")
    assert manifest.command == ["a"]
    assert len(manifest.resumptions) == 1
    entry = manifest.resumptions[0]
    assert (entry["after"], entry["step"], entry["command"]) == ("killed", 0, ["b"])
    assert entry["versions"]["torch"] != "1.0"
    assert "device" not in entry


def test_another_config_is_refused_and_the_run_left_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(UserError), run(tmp_path / "r"):
        raise UserError("x")
    before = (tmp_path / "r" / "manifest.json").read_bytes()
    with (
        pytest.raises(UserError, match=r"rate was 0\.1 and is now 0\.2"),
        run(tmp_path / "r", config={"steps": 3, "rate": 0.2}),
    ):
        pass
    assert (tmp_path / "r" / "manifest.json").read_bytes() == before
    with run(tmp_path / "r"):
        pass


def test_a_folder_that_is_no_run_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(UserError, match="holds other files"), run(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["photo.png"]
    with pytest.raises(UserError, match="cannot make"), run(tmp_path / "photo.png" / "r"):
        pass


def test_killed_before_the_manifest_was_written(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("")
    with run(tmp_path):
        pass
    assert outcome(tmp_path) == "done"


def test_leftovers_are_swept(tmp_path: Path) -> None:
    with run(tmp_path / "r") as one:
        one.checkpoints.save(1, {"a": 1})
    leftovers = [
        tmp_path / "r" / ".manifest.json.1-a.partial",
        tmp_path / "r/checkpoints/.best.safetensors.1-a.partial",
    ]
    for leftover in leftovers:
        leftover.write_text("half")
    with run(tmp_path / "r"):
        assert not any(leftover.exists() for leftover in leftovers)


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    with run(tmp_path / "r", rank=1, world=2) as other:
        assert not other.writes
        assert other.progress(total=3).disable
    assert not (tmp_path / "r").exists()
    with run(tmp_path / "r", world=2), run(tmp_path / "r", rank=1, world=2) as other:
        assert not other.finished
    with run(tmp_path / "r", rank=1, world=2) as other:
        assert other.finished


def test_progress_is_silent_off_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with run(tmp_path / "r") as one, one.progress(total=3) as bar:
        for _ in range(3):
            bar.update()
    assert capfd.readouterr() == ("", "")
    assert bar.disable


def test_progress_on_a_terminal_shows_the_time_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with run(tmp_path / "r") as one, one.progress(total=4, disable=False, mininterval=0) as bar:
        bar.update(2)
        assert isinstance(bar, tqdm)
    assert "2/4" in capfd.readouterr().err
    assert "<" in bar.__str__()


def test_a_full_disk_at_the_end_does_not_hide_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import os

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    def go() -> None:
        with run(tmp_path / "r"):
            monkeypatch.setattr(os, "fsync", full)
            raise UserError("the first")

    with pytest.raises(UserError, match="the first"):
        go()
    assert "No space left" in caplog.text
    monkeypatch.undo()
    with run(tmp_path / "r"):
        pass


def test_the_toy_is_a_run(tmp_path: Path) -> None:
    config = toy_run.settings(steps=2)
    with toy_run.enter(tmp_path / "r", config) as one:
        toy_run.train(one, toy_run.Toy(), config)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [
        *("checkpoints", "lock", "manifest.json", "metrics.jsonl", "timing.jsonl")
    ]
    assert read_manifest(tmp_path / "r").step == 2
