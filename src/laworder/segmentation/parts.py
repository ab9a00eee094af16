"""Who trains and who is held out: a split file where one is given, else the run's own seed and rule."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from laworder.data.pairs import Source
from laworder.data.split_files import read_splits
from laworder.data.splits import Split, split_source
from laworder.errors import UserError


class Splitting(Protocol):
    """The settings of any training that say who is held out."""

    @property
    def split(self) -> Path | None: ...
    @property
    def fold(self) -> int: ...
    @property
    def held_out(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def split_by(self) -> str: ...


def parts_of(config: Splitting, source: Source) -> Split:
    """The split that a run of these settings trains on."""
    if config.split is None:
        return split_source(source, val=config.held_out, seed=config.seed, by=config.split_by)
    found = read_splits(config.split, source.names)
    if config.fold >= len(found):
        raise UserError(f"fold: {config.split} holds {len(found)} splits, numbered from 0, and no {config.fold}")
    return found[config.fold]
