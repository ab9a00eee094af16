"""The data of a synthesis study, cut once: who trains the generator, and whose masks and images stay unseen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from laworder.config import group, option
from laworder.console import say
from laworder.data.opening import PHANTOM, Phantom, open_source
from laworder.data.pairs import Pair, Source
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.raw import Raw, from_source
from laworder.data.splits import split_source
from laworder.errors import UserError

KIND = "divide"
TRAIN, HELD_OUT = "train", "held-out"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Write pairs as prepared data with the pools train and held-out."""

    data: str = option(meaning="prepared folder, FOLDER:POOL, or the word phantom")
    test: str | None = option(None, "FOLDER:POOL of the held-out pairs; none: a share of DATA")
    held_out: float = option(0.1, "that share", above=0, maximum=0.9)
    size: int = option(64, "side of drawn pictures", unit="pixels", minimum=16)
    seed: int = option(0, "of the division", minimum=0)
    out: Path = option(meaning="folder of the prepared data")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"write {config.data} to {config.out}, in the pools {TRAIN} and {HELD_OUT}"]


def run(config: Config) -> None:
    """Write the prepared data."""
    source = open_source(config.data, masks=None, size=config.size, phantom=config.phantom)
    held = None if config.test is None else open_source(config.test, masks=None, size=config.size, phantom=Phantom())
    if held is not None:
        pools = {TRAIN: list(source.names), HELD_OUT: list(held.names)}
        both: Source = Joined(source, held)
    else:
        parts = split_source(source, val=config.held_out, seed=config.seed, by="group")
        pools, both = {TRAIN: list(parts.train), HELD_OUT: list(parts.val)}, source
    counts = prepare(dataclasses.replace(_raw(config, source, both), pools=lambda _: pools), config.out)["counts"]
    say(f"{counts['pools'][TRAIN]} pairs to train on, {counts['pools'][HELD_OUT]} held out: {config.out}")


def _raw(config: Config, first: Source, both: Source) -> Raw:
    classes = tuple(first.classes) if isinstance(first, PreparedSource) else ()
    return from_source(
        both,
        name="phantom" if config.data == PHANTOM else "study",
        licence="drawn by this program" if config.data == PHANTOM else "as of the data that it was cut from",
        classes=classes or ("background", "lesion"),
        rules={"seed": config.seed, "held_out": config.held_out, "size": config.size},
    )


class Joined:
    """Two sources as one; a name that both have is refused."""

    def __init__(self, first: Source, second: Source) -> None:
        self.first, self.second = first, second
        self.names = [*first.names, *second.names]
        self.groups = [*first.groups, *second.groups]
        twice = set(first.names) & set(second.names)
        if twice:
            raise UserError(f"{sorted(twice)[0]!r} is both trained on and held out; choose other pools")

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> Pair:
        return self.first.read(index) if index < len(self.first) else self.second.read(index - len(self.first))
