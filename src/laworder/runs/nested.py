"""Nested state as JSON plus named tensors: what a state dict is, and no code in it.

Tensors become `{"$tensor": name}`. JSON has no tuples, integer keys or NaN, so these get a `$` form of their own and
come back as they were. Anything else (a function, an object) is refused by its path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from laworder.errors import UserError


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `value`; its tensors are put into `tensors` under dotted names."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, Tensor):
        name = _free_name(path, tensors)
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, tensors)
    if isinstance(value, (list, tuple)):
        items = [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    raise UserError(f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; keep it out of the state")


def _free_name(path: str, taken: Mapping[str, Tensor]) -> str:
    name, n = path, 1
    while name in taken:  # {"a.b": …} beside {"a": {"b": …}}
        n += 1
        name = f"{path}#{n}"
    return name


def _encode_mapping(value: Mapping[Any, Any], path: str, tensors: dict[str, Tensor]) -> Any:
    pairs = [(key, encode(item, f"{path}.{key}", tensors)) for key, item in value.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
        return dict(pairs)
    return {"$items": [[encode(key, f"{path} (key)", tensors), item] for key, item in pairs]}


def decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match next(iter(value), None):
        case "$tensor":
            return tensors[value["$tensor"]]
        case "$float":
            return float(value["$float"])
        case "$tuple":
            return tuple(decode(item, tensors) for item in value["$tuple"])
        case "$items":
            return {decode(key, tensors): decode(item, tensors) for key, item in value["$items"]}
        case _:
            return {key: decode(item, tensors) for key, item in value.items()}


def tensor_names(value: Any) -> Iterator[str]:
    """The names that `decode(value, …)` will ask for."""
    if isinstance(value, list):
        for item in value:
            yield from tensor_names(item)
    elif isinstance(value, dict):
        if "$tensor" in value:
            yield value["$tensor"]
        else:
            yield from tensor_names(list(value.values()))
