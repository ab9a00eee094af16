"""The command line: help made from configs, errors of one line, exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from laworder.cli import main
from laworder.cli.arguments import flag
from laworder.cli.table import COMMANDS
from laworder.config import leaves, parse
from laworder.presets import preset_names

NAMES = [command.name for command in COMMANDS]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_is_a_table_of_contents(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    flat = " ".join(out.split())  # a long summary wraps
    for command in COMMANDS:
        assert f"{command.name} {command.summary}" in flat
        assert any(line.startswith(f"  {command.name} ") for line in out.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_explained(capsys: pytest.CaptureFixture[str], name: str) -> None:
    command = next(c for c in COMMANDS if c.name == name)
    code, out, _ = run(capsys, *name.split(), "--help")
    assert code == 0
    flat = " ".join(out.split())
    for leaf in leaves(command.load().Config):
        assert flag(leaf.path) in flat
        assert leaf.meaning in flat
        assert leaf.unit in flat
    assert flat.count("[default:") + flat.count("[required]") == len(leaves(command.load().Config))


@pytest.mark.parametrize("name", NAMES)
def test_every_default_and_choice_can_be_typed(name: str) -> None:
    for leaf in leaves(next(c for c in COMMANDS if c.name == name).load().Config):
        for kind in (leaf.kind, *get_args(leaf.kind)):
            for choice in get_args(kind) if get_origin(kind) is Literal else ():
                typed = parse(leaf, str(choice))
                assert typed == choice
                assert type(typed) is type(choice)
        if not leaf.required and not isinstance(leaf.default, tuple | Path):  # a tuple is typed 1,2 and ~ is expanded
            assert parse(leaf, str(leaf.default)) == leaf.default


@pytest.mark.parametrize("name", NAMES)
def test_wrong_options_are_named_with_the_nearest_right_one(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, *name.split(), "--dry-rum")
    assert (code, out) == (2, "")
    assert err == f"laworder: unknown option '--dry-rum' of `{name}`; did you mean '--dry-run'?\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dmo"], "unknown command 'dmo'; did you mean 'demo'?"),
        (["seg"], "`laworder seg` needs one of: train"),
        (["seg", "trian"], "unknown command 'seg trian'; did you mean 'train'?"),
        (["demo", "--epochs"], "option '--epochs' needs a value"),
        (["demo", "--epochs", "many"], "epochs: expected a whole number, not 'many'"),
        (["demo", "--set", "epochs"], "--set takes KEY=VALUE, not 'epochs'"),
        (["demo", "--set", "epoch=3"], "unknown setting 'epoch'; did you mean 'epochs'?"),
        (["demo", "surprise"], "`demo` does not know what to do with 'surprise'; options begin with --"),
        (["demo", "--preset", "fast"], "`demo` has no presets"),
        (["demo", "-x"], "unknown option '-x' of `demo`"),
        (["seg", "train", "phantom", "--preset", "papr"], "unknown preset 'papr'; did you mean 'paper'?"),
        (["seg", "train"], "missing setting: data"),
    ],
)
def test_errors_are_one_line_and_exit_with_2(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"laworder: {message}")
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "demo", "--epochs", "many", "--debug")
    assert code == 2
    assert "Traceback" in err


def test_later_settings_win(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 7\nseed: 5\n")
    code, out, _ = run(capsys, "demo", "--config", str(tmp_path / "mine.yaml"), "--set", "epochs=9", "--dry-run")
    assert code == 0
    assert "epochs: 9 " in out
    assert "seed: 5 " in out


def test_dry_run_prints_config_and_plan_and_does_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "seg train phantom"):
        code, out, err = run(capsys, *name.split(), "--dry-run")
        assert (code, err) == (0, "")
        assert "the resolved config" in out
        assert "\n1. " in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "preset"), [(n, p) for n in NAMES for p in preset_names(n)])
def test_every_preset_resolves(capsys: pytest.CaptureFixture[str], command: str, preset: str) -> None:
    code, _, err = run(capsys, *command.split(), "phantom", "--preset", preset, "--dry-run")
    assert (code, err) == (0, "")


def test_version_and_module_entry() -> None:
    done = subprocess.run([sys.executable, "-m", "laworder", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("laworder ")


def test_a_closed_pipe_is_not_an_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m laworder --help | head -1"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
