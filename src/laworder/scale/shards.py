"""A study cut into shares that need no coordinator: `--shard 3/8` is the same share on every machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

from laworder.errors import UserError


def parse_shard(text: str) -> tuple[int, int]:
    """`K/N` with 1 ≤ K ≤ N, as (K − 1, N)."""
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"shard: write K/N with K from 1 to N, such as 1/8, not {text!r}")
    return int(match[1]) - 1, int(match[2])


def share_of(weights: Mapping[str, float], shard: tuple[int, int]) -> list[str]:
    """The keys of one share, (its number from 0, how many): the heaviest first, each to the share with least so far.

    A function of the keys and weights alone, so that shares of one study never overlap and miss nothing.
    """
    index, count = shard
    loads, owner = [0.0] * count, dict[str, int]()
    for key in sorted(weights, key=lambda key: (-weights[key], key)):
        lightest = min(range(count), key=lambda i: (loads[i], i))
        loads[lightest] += weights[key]
        owner[key] = lightest
    return [key for key in weights if owner[key] == index]
