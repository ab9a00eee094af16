"""manifest.json: what a run is — enough to run it again and to tell whether two runs may be compared."""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from laworder._version import __version__
from laworder.errors import UserError
from laworder.runs.files import atomic_write

NAME = "manifest.json"
_LIBRARIES = (
    *("torch", "numpy", "safetensors", "pillow", "pytorch_optimizer", "scipy"),
    *("diffusers", "transformers", "accelerate", "peft", "huggingface_hub", "monai", "lightning"),
    *("nnunetv2", "onnxruntime", "openvino", "ray"),
)


def jsonable(value: Any) -> Any:
    """A config as JSON keeps it: dataclasses as objects, paths as text, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, enum.Enum):
        return jsonable(value.value)
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UserError(f"a config cannot hold a {type(value).__name__}: {value!r}")


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Python, and those of the libraries we care about that are installed."""
    found = {"python": platform.python_version(), "laworder": __version__}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(file: Path = Path(__file__)) -> dict[str, Any] | None:
    """Commit of the checkout that tracks `file` (this package); None for an installed package or without git."""
    here = file.resolve()

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=False, timeout=20
            )
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # A virtual environment may lie inside somebody else's checkout: the commit counts only if it tracks this file.
    if git("ls-files", "--error-unmatch", here.name) is None or (commit := git("rev-parse", "HEAD")) is None:
        return None
    return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}


def describe_device(device: str | torch.device) -> dict[str, Any]:
    """What decides the bits of a result: kind and name of the device, and the number of threads."""
    kind = torch.device(device)
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.machine()
    return {"type": kind.type, "name": name, "threads": torch.get_num_threads(), "system": platform.system()}


def command_line() -> list[str]:
    """This process's command without the folders of the interpreter and the script, which name people."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


@dataclasses.dataclass(kw_only=True)
class Manifest:
    """The fields of manifest.json.

    kind:        what runs, e.g. "seg train"
    command:     the command line of the first start
    config:      resolved: every value, defaults included
    seeds:       name → seed
    data:        name → hash of what was read
    outcome:     "running", "done", "stopped by SIGTERM", "failed: …"; a killed run keeps "running"
    step:        updates done when the run was last left
    resumptions: one record for each later start: when, from which step, and what differed then
    """

    kind: str
    command: list[str]
    config: dict[str, Any]
    seeds: dict[str, int]
    data: dict[str, str]
    device: dict[str, Any]
    versions: dict[str, str] = dataclasses.field(default_factory=versions)
    git: dict[str, Any] | None = dataclasses.field(default_factory=git_state)
    started: str = dataclasses.field(default_factory=now)
    ended: str | None = None
    outcome: str = "running"
    step: int | None = None
    resumptions: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    format: int = 1

    def write(self, folder: Path) -> None:
        atomic_write(folder / NAME, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a run's folder."""
    path = Path(folder) / NAME
    try:
        return Manifest(**json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a run: it has no {NAME}") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged or was written by another version: {error}") from error


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_ABSENT = "(absent)"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key → (old, new) wherever two nested mappings differ."""
    before, after = dict(flatten(old)), dict(flatten(new))
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def check_same_run(
    old: Manifest, new: Manifest, folder: Path, *, may_change: Collection[str] = (), may_grow: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The allowed differences of a resumption; UserError names the others.

    may_change: dotted config keys that do not touch the result (workers, device, how often to save)
    may_grow:   dotted config keys whose number may rise (steps)
    """
    changed = differences(old.config, new.config)
    wrong = {k: v for k, v in changed.items() if k not in may_change and not (k in may_grow and _grew(*v))}
    wrong |= {f"seed {k}": v for k, v in differences(old.seeds, new.seeds).items()}
    wrong |= {f"data {k}": v for k, v in differences(old.data, new.data).items()}
    if old.kind != new.kind:
        wrong["kind"] = (old.kind, new.kind)
    if wrong:
        listed = ", ".join(f"{key} was {a!r} and is now {b!r}" for key, (a, b) in wrong.items())
        raise UserError(f"{folder} holds a run with other settings: {listed}; set them back or use a new folder")
    return changed


def _grew(old: Any, new: Any) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (old, new))
    return numbers and new > old
