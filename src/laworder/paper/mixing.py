"""Real pairs with synthetic ones added: who trains and who validates, for the downstream tables.

The validation part is real and the same for every number of synthetic images; these are nested: 250 are among 500.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laworder.config import option
from laworder.console import say
from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import Pair, Source
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.raw import from_source
from laworder.data.split_files import write_splits
from laworder.data.splits import Split, split_source
from laworder.errors import UserError
from laworder.paper.divide import Joined

KIND = "mix"
DATA, SPLIT = "data", "split.json"
PREFIX = "synthetic-"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Write real and synthetic pairs as one prepared folder, with a split whose validation part is real."""

    data: str = option(meaning="prepared FOLDER or FOLDER:POOL of the real pairs")
    synthetic: str | None = option(None, "folder that `synth sample` wrote")
    count: int | None = option(None, "synthetic pairs to take; none: all", minimum=0)
    held_out: float = option(0.1, "share of the real pairs that validates", above=0, maximum=0.9)
    seed: int = option(0, "of that choice", minimum=0)
    out: Path = option(meaning="folder of the prepared data and the split")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"write {config.data} and {config.synthetic or 'nothing else'} to {config.out / DATA}, with {SPLIT}"]


def run(config: Config) -> None:
    """Write data and split."""
    real = _opened(config.data)
    parts = split_source(real, val=config.held_out, seed=config.seed, by="group")
    added: Sequence[str] = []
    both: Source = real
    if config.synthetic is not None and config.count != 0:
        drawn = Taken(_opened(config.synthetic), config.count)
        added, both = drawn.names, Joined(real, drawn)
    raw = from_source(
        both,
        name="mixed",
        licence="as of the data that it was mixed from",
        classes=tuple(real.classes),
        rules={"synthetic": len(added), "seed": config.seed, "held_out": config.held_out},
    )
    prepare(raw, config.out / DATA)
    split = dataclasses.replace(parts, train=(*parts.train, *added))
    write_splits(config.out / SPLIT, [Split(train=split.train, val=split.val, seed=config.seed)])
    say(f"{len(parts.train)} real and {len(added)} synthetic pairs to train on, {len(parts.val)} real to validate")


def _opened(argument: str) -> PreparedSource:
    source = open_source(argument, masks=None, size=64, phantom=Phantom())
    if not isinstance(source, PreparedSource):
        raise UserError(f"{argument} is no prepared data; `laworder data prepare` makes it")
    return source


class Taken:
    """So many pairs of a source, in an order that its names alone decide; each name with a prefix of its own."""

    def __init__(self, source: Source, count: int | None) -> None:
        if count is not None and count > len(source):
            raise UserError(f"count: {count} synthetic pairs were asked for, and there are {len(source)}")
        order = sorted(range(len(source)), key=lambda i: hashlib.sha256(source.names[i].encode()).digest())
        self.source, self.indices = source, order[:count]
        self.names: Sequence[str] = [PREFIX + source.names[i] for i in self.indices]
        self.groups: Sequence[str] = [PREFIX + source.groups[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> Pair:
        pair = self.source.read(self.indices[index])
        return dataclasses.replace(pair, name=self.names[index], group=self.groups[index])
