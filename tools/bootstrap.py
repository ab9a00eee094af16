"""Make `.venv` ready for `make demo`, `make test` and `make docs`. Standard library only; run by the Makefile.

    python3 tools/bootstrap.py [--level synth|test|dev] [--torch auto|cpu|cuda]

A second run with nothing changed reads one stamp and contacts nothing. Which torch:
1. a suitable one that .venv or the calling Python already has is used, and no second one is installed;
2. else the CPU build: asked of pip by its `+cpu` name (found where pip is set up to look for CPU builds), then of uv,
   which knows where the CPU builds lie (docs/decisions/0003);
3. the plain wheel where it is the CPU build (macOS, Windows), where an NVIDIA GPU is present, or with --torch cuda;
4. else nothing: several GB of CUDA libraries are never downloaded unasked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 10)
LEVELS = ("synth", "test", "dev")  # extras of pyproject.toml; each holds those before it
PLAIN_IS_CPU = ("darwin", "win32")
NO_CPU_TORCH = """\
no CPU build of torch {version} could be had (see above), and the plain one would bring several GB of CUDA libraries.
  To accept those:          make demo TORCH=cuda
  To use a torch you have:  make demo PYTHON=/path/to/the/python/that/imports/it"""
PROBE = """
import torch
print("torch", torch.__version__, "cuda" if torch.version.cuda or torch.version.hip else "cpu", torch.__file__)
"""
WITH_NUMPY = "import numpy, torch; torch.from_numpy(numpy.zeros(1)).sum()"


class SetupError(Exception):
    """The set-up cannot go on; the message says what to do."""


def say(line: str) -> None:
    print(f"laworder: {line}", flush=True)


def run(command: list[str], *, quiet: bool = False) -> bool:
    """Whether the command succeeded. A quiet one may fail: another way follows."""
    # PIP_USER would send packages past the virtual environment.
    env = {key: value for key, value in os.environ.items() if key != "PIP_USER"}
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, env=env, stdout=sink, stderr=sink, check=False).returncode == 0


class Torch:
    """A torch that some Python imports: its version, whether it is a `cpu` or a `cuda` build, and where it lies."""

    def __init__(self, version: str, build: str, file: str) -> None:
        self.version, self.build, self.file = version, build, file

    def suits(self, asked: str, bounds: tuple[str, str]) -> bool:
        """Within pyproject's `torch>=low,<high`, and of the build that was asked for."""
        low, high = (release(bound) for bound in bounds)
        return low <= release(self.version) < high and asked in ("auto", self.build)


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` -> (2, 13)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def find_torch(python: str) -> Torch | None:
    """The torch that `python` imports, if any."""
    if not Path(python).exists():
        return None
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False, cwd=ROOT / "tools")
    match = re.search(r"^torch (\S+) (cpu|cuda) (.+)$", done.stdout, re.MULTILINE)
    return Torch(*match.groups()) if done.returncode == 0 and match else None


def torch_bounds() -> tuple[str, str]:
    match = re.search(r'"torch>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert match, "pyproject.toml pins torch as >=LOW,<HIGH"
    return match[1], match[2]


def pinned_torch() -> str:
    match = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, "constraints.txt pins torch"
    return match[1]


def has_nvidia_gpu() -> bool:
    """Whether nvidia-smi lists a GPU; only its presence, a driver without a card prints no line."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "GPU " in done.stdout


def wanted_build(asked: str, *, platform: str, gpu: bool) -> str:
    """`plain` (what the package index holds under torch's bare version) or `cpu`."""
    if platform in PLAIN_IS_CPU or asked == "cuda" or (gpu and asked == "auto"):
        return "plain"
    return "cpu"


def venv_python(venv: Path) -> str:
    return str(venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def pip(venv: Path, *arguments: str) -> list[str]:
    # Through `-m pip`: the scripts' first line breaks where the path holds a space.
    return [venv_python(venv), "-m", "pip", "--disable-pip-version-check", *arguments]


def check_python() -> None:
    if sys.version_info < OLDEST:
        have = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"Python {have} is too old, 3.10 or later is needed: make demo PYTHON=python3.12")
    try:
        import ensurepip  # noqa: F401  Debian ships Python without it
        import venv  # noqa: F401
    except ImportError:
        raise SetupError("this Python cannot make virtual environments: apt-get install python3-venv") from None


def make_venv(venv: Path, *, share: bool) -> None:
    """A fresh virtual environment; with `share`, what the calling Python has is seen from it."""
    say(f"making {venv.name} with Python {'.'.join(map(str, sys.version_info[:3]))}")
    # Called from another virtual environment, --system-site-packages would show its base Python instead of itself.
    nested = sys.prefix != sys.base_prefix
    command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    if not run(command + ["--system-site-packages"] * (share and not nested)):
        raise SetupError(f"cannot make {venv}: see above")
    if share and nested:
        command = [venv_python(venv), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        theirs = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
        (site / "calling-python.pth").write_text("\n".join(theirs) + "\n", encoding="utf-8")


def usable(venv: Path) -> bool:
    """Whether the environment runs the calling Python's version and has pip; an interrupted run may leave less."""
    if not Path(venv_python(venv)).exists():
        return False
    same = f"import sys, pip; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    return run([venv_python(venv), "-c", same], quiet=True)


def prepare_venv(venv: Path, asked: str) -> Torch | None:
    """Make or keep the environment; the torch it has then, if that suits."""
    bounds = torch_bounds()
    if usable(venv):
        torch = find_torch(venv_python(venv))
        if torch is not None and torch.suits(asked, bounds):
            return torch
    theirs = find_torch(sys.executable)
    share = theirs is not None and theirs.suits(asked, bounds)
    if share or not usable(venv):
        make_venv(venv, share=share)
    torch = find_torch(venv_python(venv))
    return torch if torch is not None and torch.suits(asked, bounds) else None


def install_torch(venv: Path, asked: str) -> None:
    version = pinned_torch()
    run(pip(venv, "uninstall", "-q", "-y", "torch"), quiet=True)  # one that does not suit, if any
    build = wanted_build(asked, platform=sys.platform, gpu=asked == "auto" and has_nvidia_gpu())
    if build == "plain":
        small = sys.platform in PLAIN_IS_CPU
        say(f"installing torch {version}" + ("" if small else " with CUDA (several GB; TORCH=cpu takes the CPU build)"))
        if not run(pip(venv, "install", "-qq", "-c", "constraints.txt", f"torch=={version}")):
            raise SetupError(f"torch {version} could not be installed: see above")
        return
    say(f"installing torch {version}, the CPU build")
    if run(pip(venv, "install", "-qq", "-c", "constraints.txt", f"torch=={version}+cpu"), quiet=True):
        return
    say("pip knows no CPU build here; asking uv")
    uv = [venv_python(venv), "-m", "uv", "pip", "install", "-q", "--python", venv_python(venv)]
    uv += ["-c", "constraints.txt", "--torch-backend", "cpu", f"torch=={version}"]
    if not (run(pip(venv, "install", "-qq", "-c", "constraints.txt", "uv")) and run(uv)):
        raise SetupError(NO_CPU_TORCH.format(version=version))


def install_package(venv: Path, level: str, torch: Torch) -> None:
    """The package, editable, with the level's extras at their pinned versions, beside the torch that is there."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    ours = venv / "constraints.txt"
    ours.write_text(re.sub(r"^torch==.*$", f"torch=={torch.version}", pins, flags=re.MULTILINE), encoding="utf-8")
    say(f"installing laworder[{level}] with pinned dependencies (minutes at the first time)")
    if not run(pip(venv, "install", "-qq", "-c", str(ours), "-e", f".[{level}]")):
        raise SetupError("the dependencies could not be installed: see above; the same command again goes on")


def highest(*levels: str) -> str:
    return max(levels, key=LEVELS.index)


class Stamp:
    """What the environment was last completed for; it is the last thing written."""

    def __init__(self, venv: Path) -> None:
        self.path = venv / "laworder-stamp.json"
        digest = hashlib.sha256(json.dumps([str(venv.resolve()), sys.version_info[:2]]).encode())
        for name in ("pyproject.toml", "constraints.txt"):
            digest.update((ROOT / name).read_bytes())
        self.inputs = digest.hexdigest()

    def read(self) -> dict[str, str]:
        try:
            stamp = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) and stamp.get("inputs") == self.inputs else {}

    def covers(self, level: str, asked: str) -> bool:
        """Whether the environment is complete for this level (or a higher one) and this build of torch."""
        stamp = self.read()
        if not stamp or not Path(stamp["torch"]).exists():  # it may be the user's own, and gone since
            return False
        return highest(level, stamp["level"]) == stamp["level"] and asked in ("auto", stamp["build"])

    def write(self, level: str, torch: Torch) -> None:
        text = json.dumps({"inputs": self.inputs, "level": level, "build": torch.build, "torch": torch.file})
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.path)


def bootstrap(venv: Path, level: str, asked: str) -> None:
    check_python()
    stamp = Stamp(venv)
    if stamp.covers(level, asked) and Path(venv_python(venv)).exists():
        return
    level = highest(level, stamp.read().get("level", level))
    torch = prepare_venv(venv, asked)
    if torch is None:
        install_torch(venv, asked)
        torch = find_torch(venv_python(venv))
    else:
        say(f"using the torch that is there: {torch.version}")
    if torch is None:
        raise SetupError(f"torch was installed into {venv.name} but cannot be imported: rm -r {venv.name}, and again")
    install_package(venv, level, torch)
    if not run([venv_python(venv), "-c", WITH_NUMPY]):
        raise SetupError(f"torch {torch.version} and the pinned numpy do not work together: see above")
    stamp.write(level, torch)
    say(f"{venv.name} is ready")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=LEVELS, default="synth", help="which extras to install")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto", help="which build of torch")
    options = parser.parse_args(arguments)
    try:
        bootstrap(ROOT / ".venv", options.level, options.torch)
    except (SetupError, OSError) as error:
        print(f"laworder: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
