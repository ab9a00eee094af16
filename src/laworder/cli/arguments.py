"""Words of a command line → settings by dotted path. Values are checked later, by the config itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laworder.config import Leaf, leaves
from laworder.errors import UserError, nearest


@dataclass
class Invocation:
    """What the user asked of a command."""

    values: dict[str, Any] = field(default_factory=dict)
    preset: str | None = None
    config_files: list[Path] = field(default_factory=list)
    dry_run: bool = False
    help: bool = False


def flag(path: str) -> str:
    """A setting's name on the command line; `from_` is `--from`, which no Python field may be called."""
    return "--" + path.rstrip("_").replace("_", "-")


def parse_arguments(command: str, config: type[Any], words: Sequence[str]) -> Invocation:
    """Read flags, `--set a.b=c`, `--config FILE`, `--preset NAME`, `--dry-run` and positional words."""
    found = leaves(config)
    by_flag = {flag(leaf.path): leaf for leaf in found}
    positional = [leaf for leaf in found if leaf.positional]
    invocation, queue = Invocation(), list(words)
    while queue:
        word = queue.pop(0)
        if word in ("-h", "--help"):
            invocation.help = True
        elif word == "--dry-run":
            invocation.dry_run = True
        elif word.startswith("--"):
            _read_option(command, word, queue, by_flag, invocation)
        elif word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            raise UserError(f"unknown option {word!r} of `{command}`{nearest(word, by_flag)}")
        elif positional:
            invocation.values[positional.pop(0).path] = word
        else:
            raise UserError(f"`{command}` does not know what to do with {word!r}; options begin with --")
    return invocation


def _read_option(command: str, word: str, queue: list[str], by_flag: dict[str, Leaf], invocation: Invocation) -> None:
    name, equals, text = word.partition("=")
    name = "--" + name[2:].replace("_", "-")
    negated = by_flag.get("--" + name[5:]) if name.startswith("--no-") else None
    if negated is not None and negated.kind is bool and not equals:
        invocation.values[negated.path] = False
        return
    leaf = by_flag.get(name)
    if leaf is None and name not in _COMMON:
        known = [*by_flag, *_COMMON, "--dry-run", "--help", "--debug"]
        raise UserError(f"unknown option {name!r} of `{command}`{nearest(name, known)}")
    if leaf is not None and leaf.kind is bool and not equals:
        invocation.values[leaf.path] = True
        return
    value = text if equals else _next(name, queue)
    if leaf is not None:
        invocation.values[leaf.path] = value
    else:
        _COMMON[name](invocation, value)


def _next(name: str, queue: list[str]) -> str:
    if not queue or (queue[0].startswith("--") and len(queue[0]) > 2):
        raise UserError(f"option {name!r} needs a value")
    return queue.pop(0)


def _set(invocation: Invocation, text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set takes KEY=VALUE, not {text!r}")
    invocation.values[key.strip().replace("-", "_")] = value.strip()


def _config(invocation: Invocation, text: str) -> None:
    invocation.config_files.append(Path(text))


def _preset(invocation: Invocation, text: str) -> None:
    invocation.preset = text


_COMMON = {"--set": _set, "--config": _config, "--preset": _preset}
