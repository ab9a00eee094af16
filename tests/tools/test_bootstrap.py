"""What tools/bootstrap.py decides, with a fake pip: nothing here installs anything or uses the network."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Machine:
    """A checkout in a path with a space, and the commands that ran: those holding a word of `failing` failed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "a clone"
        (self.root / "tools").mkdir(parents=True)
        for name in ("pyproject.toml", "constraints.txt", "tools/bootstrap.py"):
            shutil.copy(ROOT / name, self.root / name)
        self.code = load(self.root / "tools" / "bootstrap.py")
        self.venv = self.root / ".venv"
        self.python = self.code.venv_python(self.venv)
        self.ran: list[list[str]] = []
        self.failing: set[str] = set()
        self.torch: dict[str, tuple[str, str]] = {}  # which Python imports which version and build
        self.torch_file = __file__  # any file that is there
        self.gpu = False
        monkeypatch.setattr(self.code, "run", self.run)
        monkeypatch.setattr(self.code, "find_torch", self.find_torch)
        monkeypatch.setattr(self.code, "has_nvidia_gpu", lambda: self.gpu)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # called from no virtual environment

    def find_torch(self, python: str) -> object:
        return self.code.Torch(*self.torch[python], self.torch_file) if python in self.torch else None

    def run(self, command: list[str], *, quiet: bool = False) -> bool:
        del quiet
        self.ran.append(command[1:])
        if any(word in part for part in command for word in self.failing):
            return False
        if command[1:3] == ["-m", "venv"]:
            Path(self.python).parent.mkdir(parents=True, exist_ok=True)
            Path(self.python).touch()
            if "--system-site-packages" in command and sys.executable in self.torch:
                self.torch[self.python] = self.torch[sys.executable]
        for part in command:
            if part.startswith("torch=="):
                cpu = "+cpu" in part or "--torch-backend" in command
                self.torch[self.python] = (part.removeprefix("torch=="), "cpu" if cpu else "cuda")
        return True

    def bootstrap(self, level: str = "synth", asked: str = "auto") -> list[list[str]]:
        """What this call ran."""
        self.ran.clear()
        self.code.bootstrap(self.venv, level, asked)
        return self.ran

    def installs(self) -> list[str]:
        """The last word of each `install`: what was asked for."""
        return [command[-1] for command in self.ran if "install" in command]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_fresh_machine_gets_the_cpu_build_by_its_name(machine: Machine) -> None:
    pinned = machine.code.pinned_torch()
    machine.bootstrap()
    assert machine.installs() == [f"torch=={pinned}+cpu", ".[synth]"]


def test_where_pip_knows_no_cpu_build_uv_is_asked(machine: Machine) -> None:
    pinned = machine.code.pinned_torch()
    machine.failing = {"+cpu"}
    ran = machine.bootstrap()
    assert machine.installs() == [f"torch=={pinned}+cpu", "uv", f"torch=={pinned}", ".[synth]"]
    uv = next(command for command in ran if command[:2] == ["-m", "uv"])
    assert uv[uv.index("--torch-backend") + 1] == "cpu"


def test_without_a_cpu_build_nothing_large_is_downloaded(machine: Machine) -> None:
    machine.failing = {"+cpu", "--torch-backend"}
    with pytest.raises(machine.code.SetupError, match="make demo TORCH=cuda"):
        machine.bootstrap()
    assert not (machine.venv / "laworder-stamp.json").exists()
    plain = [command for command in machine.ran if "install" in command and "--torch-backend" not in command]
    assert not [command for command in plain if command[-1] == f"torch=={machine.code.pinned_torch()}"]


@pytest.mark.parametrize(
    ("platform", "gpu", "asked"), [("darwin", False, "auto"), ("linux", True, "auto"), ("linux", False, "cuda")]
)
def test_the_plain_wheel_is_taken_where_it_is_right(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, platform: str, gpu: bool, asked: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    machine.gpu = gpu
    machine.bootstrap(asked=asked)
    assert machine.installs()[0] == f"torch=={machine.code.pinned_torch()}"
    assert not [command for command in machine.ran if "--torch-backend" in command]


def test_the_cpu_build_can_be_asked_for_beside_a_gpu(machine: Machine) -> None:
    machine.gpu = True
    machine.bootstrap(asked="cpu")
    assert machine.installs()[0].endswith("+cpu")


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu"])
def test_the_users_own_torch_is_used_and_pinned(machine: Machine, version: str) -> None:
    machine.torch[sys.executable] = (version, "cpu")
    ran = machine.bootstrap()
    assert "--system-site-packages" in ran[0]
    assert machine.installs() == [".[synth]"]
    pins = (machine.venv / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pins if line.startswith("torch==")] == [f"torch=={version}"]
    assert "-c" in ran[-2]
    assert str(machine.venv / "constraints.txt") in ran[-2]


@pytest.mark.parametrize(("version", "asked"), [("2.10.1", "auto"), ("2.14.0", "auto"), ("1.13.1", "auto")])
def test_an_unsuitable_torch_is_left_alone(machine: Machine, version: str, asked: str) -> None:
    machine.torch[sys.executable] = (version, "cpu")
    ran = machine.bootstrap(asked=asked)
    assert "--system-site-packages" not in ran[0]
    assert machine.installs()[0].endswith("+cpu")


def test_torch_of_the_other_build_is_replaced_only_when_asked(machine: Machine) -> None:
    machine.bootstrap()
    machine.bootstrap(asked="cuda")
    assert ["-q", "-y", "torch"] in [command[-3:] for command in machine.ran if "uninstall" in command]
    assert machine.installs()[0] == f"torch=={machine.code.pinned_torch()}"
    assert machine.bootstrap(asked="auto") == []


def test_a_second_run_contacts_nothing(machine: Machine) -> None:
    machine.bootstrap("test")
    assert machine.bootstrap("test") == []
    assert machine.bootstrap("synth") == [], "test holds what synth needs"


def test_a_higher_level_installs_and_a_lower_one_keeps_it(machine: Machine) -> None:
    machine.bootstrap("synth")
    machine.bootstrap("dev")
    assert machine.installs() == [".[dev]"]
    assert machine.bootstrap("synth") == []


def test_a_torch_that_is_gone_is_replaced(machine: Machine) -> None:
    machine.torch[sys.executable] = ("2.12.0", "cpu")
    machine.bootstrap()
    machine.torch_file = str(machine.root / "removed since")
    machine.bootstrap("test")
    machine.torch.clear()
    machine.torch_file = __file__
    machine.bootstrap("test")
    assert machine.installs() == [f"torch=={machine.code.pinned_torch()}+cpu", ".[test]"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_pins_are_installed(machine: Machine, name: str) -> None:
    machine.bootstrap()
    with (machine.root / name).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    machine.bootstrap()
    assert machine.installs() == [".[synth]"], "and torch stays"


def test_an_interrupted_installation_goes_on(machine: Machine) -> None:
    machine.failing = {".[synth]"}
    with pytest.raises(machine.code.SetupError, match="the same command again goes on"):
        machine.bootstrap()
    machine.failing = set()
    machine.bootstrap()
    assert machine.installs() == [".[synth]"], "torch is there already"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": "of another checkout", "level": "dev", "build": "cpu"}'])
def test_a_damaged_or_foreign_stamp_counts_for_nothing(machine: Machine, text: str) -> None:
    machine.bootstrap()
    (machine.venv / "laworder-stamp.json").write_text(text, encoding="utf-8")
    machine.bootstrap()
    assert machine.installs() == [".[synth]"]


def test_an_old_python_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    with pytest.raises(machine.code.SetupError, match=r"Python 3\.9\.18 is too old.*PYTHON="):
        machine.bootstrap()
    assert machine.ran == []


def test_a_python_without_ensurepip_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(machine.code.SetupError, match="python3-venv"):
        machine.bootstrap()


def test_errors_are_one_line_and_exit_code_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 0, "final", 0))
    assert machine.code.main([]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_real_environment_in_a_path_with_a_space(tmp_path: Path) -> None:
    """make_venv and the probes for real; only pip is left out."""
    code = load(ROOT / "tools" / "bootstrap.py")
    venv = tmp_path / "with space" / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    assert not code.usable(venv), "no pip in it"
    assert code.find_torch(code.venv_python(venv)) is None
    here = code.find_torch(sys.executable)
    assert here is not None
    assert here.suits("auto", code.torch_bounds())


def test_extras_named_by_the_levels_exist_and_nest() -> None:
    code = load(ROOT / "tools" / "bootstrap.py")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for level in code.LEVELS:
        assert f"\n{level} = [" in text
    assert '"laworder[synth' in text.split("\ntest = [")[1].split("]\n")[0]
    assert '"laworder[test' in text.split("\ndev = [")[1].split("\n")[0]


def test_every_direct_dependency_is_pinned() -> None:
    pins = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = {word.replace("_", "-").lower() for word in code_names(text)}
    assert wanted
    assert wanted <= pins


def code_names(text: str) -> set[str]:
    """The distributions that pyproject asks for by name and bound."""
    return set(re.findall(r'"([A-Za-z][\w.-]*)(?:\[[\w,-]+\])?>=', text.split("[build-system]")[1].split("[tool.")[0]))


def test_makefile_recipes_hold_their_quotes() -> None:
    """`make -n` in a path with a space prints the bootstrap call as one word each."""
    done = subprocess.run(
        ["make", "-n", "demo", "test", "PYTHON=/a path/python3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "BOOTSTRAP")},
    )
    assert '"/a path/python3" tools/bootstrap.py --torch "auto" --level synth' in done.stdout
