"""Help texts, made from the table of commands and the typed configs: nothing is written twice."""

from __future__ import annotations

import inspect
import shutil
import textwrap
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from laworder.cli.arguments import flag
from laworder.cli.table import Command
from laworder.config import Leaf, leaves
from laworder.presets import describe, preset_names

COMMON = (
    ("--preset NAME", "start from the settings of a shipped preset"),
    ("--config FILE", "settings from a YAML file, over the preset's"),
    ("--set KEY=VALUE", "one setting, over all files (`--set lr=1e-3`); may be given several times"),
    ("--dry-run", "print the resolved settings and the plan, do nothing"),
    ("--debug", "show the traceback behind an error"),
    ("--help", "this text"),
)


def overview(commands: Sequence[Command]) -> str:
    """`laworder --help`: a table of contents."""
    lines = [
        "laworder: synthesise and segment small lesions, from a few hundred images.",
        "",
        "usage: laworder COMMAND [options]        laworder COMMAND --help        laworder --version",
    ]
    for section in dict.fromkeys(command.section for command in commands):
        members = [command for command in commands if command.section == section]
        lines += ["", f"{section}:", *_columns([(c.name, c.summary) for c in members])]
    return "\n".join(lines)


def command_help(command: Command, config: type[Any]) -> str:
    """`laworder COMMAND --help`: every option with meaning, default and unit."""
    found = leaves(config)
    words = [leaf.path.upper() if leaf.required else f"[{leaf.path.upper()}]" for leaf in found if leaf.positional]
    lines = [f"usage: {' '.join(['laworder', command.name, *words, '[options]'])}", ""]
    lines += textwrap.wrap(inspect.getdoc(config) or command.summary, _width())
    for title, members in _sections(found):
        lines += ["", f"{title}:", *_columns([(_name(leaf), _meaning(leaf)) for leaf in members])]
    if presets := preset_names(command.name):
        lines += ["", f"presets: {', '.join(presets)}"]
    return "\n".join([*lines, "", "everywhere:", *_columns(COMMON)])


def _sections(found: Sequence[Leaf]) -> list[tuple[str, list[Leaf]]]:
    sections: dict[str, list[Leaf]] = {}
    for leaf in found:
        title = leaf.path.rpartition(".")[0] or "options"
        sections.setdefault(title, []).append(leaf)
    return list(sections.items())


def _name(leaf: Leaf) -> str:
    if leaf.kind is bool:
        return f"{flag(leaf.path)}, --no-{flag(leaf.path)[2:]}"
    shown = f"{leaf.path.upper()} or {flag(leaf.path)}" if leaf.positional else flag(leaf.path)
    return f"{shown} {type_name(leaf.kind)}"


def type_name(kind: Any) -> str:
    """A type as help shows it."""
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_name(k) for k in get_args(kind) if k is not type(None))
    if origin is Literal:
        return "{" + ",".join(str(choice) for choice in get_args(kind)) + "}"
    if origin is tuple:
        args = get_args(kind)
        return f"{type_name(args[0])},…" if args[1:] == (...,) else ",".join(type_name(k) for k in args)
    return {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH", bool: "BOOL"}[kind]


def _meaning(leaf: Leaf) -> str:
    if leaf.required:
        return f"{describe(leaf)} [required]"
    default = leaf.default
    if isinstance(default, tuple):
        default = ",".join(str(v) for v in default) or "none"
    elif isinstance(default, bool):
        default = "yes" if default else "no"
    return f"{describe(leaf)} [default: {'none' if default is None else default}]"


def _columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    left = min(max(len(name) for name, _ in rows), 34) + 4
    lines: list[str] = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(_width() - left, 24), break_on_hyphens=False) or [""]
        head = f"  {name}"
        if len(head) > left - 2:
            lines += [head, " " * left + wrapped[0]]
        else:
            lines.append(head.ljust(left) + wrapped[0])
        lines += [" " * left + more for more in wrapped[1:]]
    return lines


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 110)
