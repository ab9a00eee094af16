"""Typed settings: frozen dataclasses whose every field says what it means.

    @dataclass(frozen=True, kw_only=True)
    class TrainConfig:
        steps: int = option(1000, "optimiser steps", minimum=1)
        lr: float = option(1e-3, "peak learning rate", above=0)
        augment: Augment = group(Augment, "what is done to each batch")

One declaration serves the help text, the YAML presets, `--set a.b=c`, `--dry-run` and the run's manifest.
Values are checked when they come in, from wherever they come; a wrong one is a `UserError` that names the key.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from laworder.errors import UserError, nearest

T = TypeVar("T")


def option(
    default: Any = MISSING,
    meaning: str = "",
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    positional: bool = False,
) -> Any:
    """A setting: its default (none: it must be given), its meaning in words, its unit and its bounds."""
    assert meaning, "every setting says what it means"
    facts = {"meaning": meaning, "unit": unit, "minimum": minimum, "maximum": maximum, "above": above}
    return field(default=default, metadata={**facts, "positional": positional})


def group(kind: type, meaning: str) -> Any:
    """Settings that belong together: a nested dataclass."""
    return field(default_factory=kind, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Leaf:
    """One setting of a config, at its dotted path."""

    path: str
    kind: Any
    default: Any
    meaning: str
    unit: str
    minimum: float | None
    maximum: float | None
    above: float | None
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is MISSING

    def bounds(self) -> str:
        """The allowed values in words; empty where everything of the type is allowed."""
        parts = [f"> {self.above:g}"] if self.above is not None else []
        parts += [f">= {self.minimum:g}"] if self.minimum is not None else []
        parts += [f"<= {self.maximum:g}"] if self.maximum is not None else []
        return " and ".join(parts)


def leaves(kind: type, prefix: str = "", base: Any = None) -> list[Leaf]:
    """Every setting of a config type, in order, nested ones by their dotted path. `base` overrides the defaults."""
    hints = typing.get_type_hints(kind)
    found: list[Leaf] = []
    for entry in dataclasses.fields(kind):
        path, hint = prefix + entry.name, hints[entry.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            inner = getattr(base, entry.name) if base is not None else _default(entry)
            found += leaves(hint, path + ".", inner)
            continue
        facts = dict(entry.metadata)
        default = getattr(base, entry.name) if base is not None else _default(entry)
        found.append(Leaf(path=path, kind=hint, default=default, **facts))
    return found


def _default(entry: dataclasses.Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def build(kind: type[T], values: Mapping[str, Any]) -> T:
    """A checked config from dotted paths to values (texts, as typed on the command line, or YAML's own types)."""
    known = {leaf.path: leaf for leaf in leaves(kind)}
    for path in values:
        if path not in known:
            raise UserError(f"unknown setting {path!r}{nearest(path, known)}")
    missing = [leaf.path for leaf in known.values() if leaf.required and leaf.path not in values]
    if missing:
        raise UserError(f"missing setting{'s' * (len(missing) > 1)}: {', '.join(missing)}")
    return _assemble(kind, {path: parse(known[path], value) for path, value in values.items()}, "")


def _assemble(kind: type[T], values: Mapping[str, Any], prefix: str) -> T:
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
        path = prefix + entry.name
        if dataclasses.is_dataclass(hints[entry.name]):
            inner = {p: v for p, v in values.items() if p.startswith(path + ".")}
            # A group's own default may differ from its type's: start from it.
            start = {leaf.path: leaf.default for leaf in leaves(hints[entry.name], path + ".", _default(entry))}
            given[entry.name] = _assemble(hints[entry.name], {**start, **inner}, path + ".")
        elif path in values:
            given[entry.name] = values[path]
    return kind(**given)


def parse(leaf: Leaf, value: Any) -> Any:
    """`value` as the leaf's type and inside its bounds, or a UserError that names the leaf."""
    try:
        result = convert(leaf.kind, value)
    except ValueError as error:
        raise UserError(f"{leaf.path}: {error}") from None
    for number in result if isinstance(result, tuple) else (result,):
        if isinstance(number, (int, float)) and not isinstance(number, bool) and not _inside(leaf, number):
            raise UserError(f"{leaf.path}: must be {leaf.bounds()}, not {number}")
    return result


def _inside(leaf: Leaf, number: float) -> bool:
    if number != number:  # NaN is inside nothing
        return leaf.minimum is None and leaf.maximum is None and leaf.above is None
    low = leaf.minimum is None or number >= leaf.minimum
    high = leaf.maximum is None or number <= leaf.maximum
    return low and high and (leaf.above is None or number > leaf.above)


def convert(kind: Any, value: Any) -> Any:
    """A text or YAML value as `kind`; ValueError says what was expected."""
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert_optional(kind, value)
    if origin is Literal:
        choices = get_args(kind)
        for choice in choices:  # numbers come as text from the command line
            if value in (choice, str(choice)) and not isinstance(value, bool):
                return choice
        raise ValueError(f"unknown choice {value!r}{nearest(str(value), choices)}")
    if origin is tuple:
        return _convert_tuple(kind, value)
    converter = {bool: _to_bool, int: _to_int, float: _to_float, str: _to_str, Path: _to_path}.get(kind)
    assert converter is not None, f"settings of type {kind} are not supported"
    return converter(value)


def _convert_optional(kind: Any, value: Any) -> Any:
    inner = [k for k in get_args(kind) if k is not type(None)]
    assert len(inner) == 1, "only `X | None` is supported"
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
        return None
    return convert(inner[0], value)


def _convert_tuple(kind: Any, value: Any) -> tuple[Any, ...]:
    args = get_args(kind)
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected values separated by commas, not {value!r}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(convert(args[0], v) for v in value)
    if len(value) != len(args):
        raise ValueError(f"expected {len(args)} values separated by commas, not {len(value)}")
    return tuple(convert(k, v) for k, v in zip(args, value, strict=True))


def _to_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(f"expected true or false, not {value!r}")


def _to_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value.replace("_", "")) if isinstance(value, str) else _whole(value)
    except (ValueError, TypeError):
        raise ValueError(f"expected a whole number, not {value!r}") from None


def _whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, not {value!r}")
    try:
        return float(value)
    except (ValueError, TypeError):
        raise ValueError(f"expected a number, not {value!r}") from None


def _to_str(value: Any) -> str:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"expected a text, not {value!r}")


def _to_path(value: Any) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value).expanduser()
    raise ValueError(f"expected a path, not {value!r}")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted paths."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_dict(config: Any) -> dict[str, Any]:
    """A config as nested plain values that JSON and YAML can hold; `build(type, flatten(...))` gives it back."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return str(value) if isinstance(value, Path) else value

    return plain(config)
