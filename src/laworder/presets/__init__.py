"""Settings by file: annotated YAML presets that ship with the package, and files of the user's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from laworder.config import Leaf, flatten, leaves
from laworder.errors import UserError, nearest

FOLDER = Path(__file__).parent


def preset_names(command: str) -> list[str]:
    """The presets of a command ("seg train"), by name."""
    return sorted(path.stem for path in (FOLDER / slug(command)).glob("*.yaml"))


def slug(command: str) -> str:
    """A command's name as a folder name."""
    return command.replace(" ", "-")


def read_preset(command: str, name: str) -> dict[str, Any]:
    """The settings of a shipped preset, by dotted path."""
    known = preset_names(command)
    if not known:
        raise UserError(f"`{command}` has no presets")
    if name not in known:
        raise UserError(f"unknown preset {name!r}{nearest(name, known)}")
    return read_yaml(FOLDER / slug(command) / f"{name}.yaml")


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, by dotted path."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"config file {path} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"config file {path} cannot be read: {first}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"config file {path} must hold `key: value` lines, not a {type(tree).__name__}")
    return flatten({str(key): value for key, value in tree.items()})


def annotated_yaml(config: Any) -> str:
    """A config as YAML whose every key carries its meaning, as `--dry-run` prints it and a preset file has it."""
    lines: list[str] = []
    _write(config, "", lines)
    return "\n".join(lines) + "\n"


def _write(config: Any, indent: str, lines: list[str]) -> None:
    facts = {leaf.path: leaf for leaf in leaves(type(config)) if "." not in leaf.path}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if dataclasses.is_dataclass(value):
            lines.append(f"{indent}{entry.name}:  # {entry.metadata['meaning']}")
            _write(value, indent + "  ", lines)
        else:
            lines.append(f"{indent}{entry.name}: {_scalar(value)}  # {describe(facts[entry.name])}")


def _scalar(value: Any) -> str:
    value = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def describe(leaf: Leaf) -> str:
    """Meaning, bounds and unit of a setting, on one line."""
    facts = ", ".join(part for part in (leaf.bounds(), leaf.unit) if part)
    return f"{leaf.meaning} ({facts})" if facts else leaf.meaning
