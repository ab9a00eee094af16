"""Metrics in TensorBoard and W&B: each step once, whatever happened in between."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laworder.errors import UserError
from laworder.runs import Run
from laworder.runs.mirrors import Where, chosen, mirrored


def enter(folder: Path, **more: Any) -> Run:
    return Run(folder, config={}, kind="t", seeds={}, **more)


def stretch(folder: Path, first: int, last: int, where: Where = "tensorboard", *, kept: int | None = None) -> None:
    """Steps `first` to `last`, after the log was cut back to `kept`, as a run that goes on does."""
    with enter(folder) as run, mirrored(run, where):
        run.manifest.outcome = "running"
        run.metrics.truncate(first - 1 if kept is None else kept)
        for step in range(first, last + 1):
            run.metrics.write(step, {"loss": step / 8, "bad": float("nan"), "word": "x"})
        raise SystemExit("stopped by SIGTERM")


def shown(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_each_step_once_after_a_resumption(tmp_path: Path) -> None:
    for first, last in ((1, 5), (4, 7)):  # killed after 5, resumed from the checkpoint of 3
        with pytest.raises(SystemExit):
            stretch(tmp_path, first, last)
    assert shown(tmp_path) == {"loss": [(step, step / 8) for step in range(1, 8)]}


class Board(ModuleType):
    """What of W&B is used: a run that has an id, a step, `log` and `finish`, and that cannot take back."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.ids: list[str] = []
        self.lines: dict[str, list[tuple[int, dict[str, float]]]] = {}
        self.finished = 0

    def init(self, **settings: Any) -> Any:
        assert settings["resume"] == "allow"
        identity = settings["id"]
        self.ids.append(identity)
        lines, board = self.lines.setdefault(identity, []), self

        class Remote:
            step = lines[-1][0] + 1 if lines else 0

            def log(self, values: dict[str, float], *, step: int) -> None:
                assert not lines or step > lines[-1][0], "W&B drops what comes late"
                lines.append((step, values))

            def finish(self) -> None:
                board.finished += 1

        return Remote()


def test_wandb_is_continued_and_told_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    monkeypatch.setitem(sys.modules, "wandb", board)
    for first, last in ((1, 5), (4, 7)):
        with pytest.raises(SystemExit):
            stretch(tmp_path / "a", first, last, "wandb")
    with pytest.raises(SystemExit):
        stretch(tmp_path / "b", 1, 1, "wandb")
    assert board.ids[0] == board.ids[1] != board.ids[2]
    assert board.lines[board.ids[0]] == [(step, {"loss": step / 8}) for step in range(1, 8)]
    assert board.finished == 3


@pytest.mark.parametrize(
    ("module", "where", "message"),
    [
        ("wandb", "wandb", "log: wandb is not installed: pip install wandb"),
        ("torch.utils.tensorboard", "tensorboard", r"this needs tensorboard.*laworder\[track\]"),
    ],
)
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, where: Where, message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=message), enter(tmp_path) as run, mirrored(run, where):
        pass


def test_auto_is_tensorboard_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen("auto") == "tensorboard"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert chosen("auto") == "none"
    assert chosen("wandb") == "wandb"


@pytest.mark.parametrize("more", [{"rank": 1, "world": 2}, {}])
def test_others_than_the_writer_show_nothing(tmp_path: Path, more: dict[str, int]) -> None:
    with enter(tmp_path / "x", **more) as run, mirrored(run, "tensorboard" if more else "none"):
        assert run.metrics.mirrors == []
    assert not (tmp_path / "x" / "tensorboard").exists()
