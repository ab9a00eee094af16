"""What is known only when all pairs are written: which of them are identical, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laworder.data.sources.raw import Record


def identical_share_groups(records: Sequence[Record]) -> None:
    """Pairs whose images are identical get one group, named after the first of them; so do
    their groups' others. In place.

    A split by group then cannot put the same picture on both sides.
    """
    parent: dict[str, str] = {}

    def root(group: str) -> str:
        while parent.get(group, group) != group:
            parent[group] = parent.get(parent[group], parent[group])
            group = parent[group]
        return group

    first: dict[str, str] = {}
    for record in records:
        mine, other = root(record["group"]), root(first.setdefault(record["image_sha256"], record["group"]))
        # The earlier group gives the name.
        parent[mine] = other
    for record in records:
        record["group"] = root(record["group"])


def summary(records: Sequence[Record], pools: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The counts in `dataset.json`."""
    return {
        "pairs": len(records),
        "groups": len({record["group"] for record in records}),
        "empty_masks": sum(record["lesion_pixels"] == 0 for record in records),
        "identical_images": len(records) - len({record["image_sha256"] for record in records}),
        "pools": {pool: len(names) for pool, names in pools.items()},
    }
