"""What a download holds before it is prepared: facts about it, units of work, and named pools.

A *unit* is what is read in one go: an image with its mask, a CT volume, a stack of frames. It yields *items*, each a
pair and what else is known about it. Units are independent of each other, so that they can be worked on in parallel,
and are known without decoding anything, so that an interrupted preparation knows what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laworder.data.pairs import Pair, Source
from laworder.data.sources.folder import read_match
from laworder.data.sources.images import read_image
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import Match

Record = dict[str, Any]
"""A pair as `dataset.json` describes it: name, group, width, height, lesion_pixels, hashes, and the item's extras."""


@dataclass(frozen=True)
class Unit:
    """One piece of work.

    key: unique in its source and the same on every machine
    files: what it is read from; their sizes and times tell whether it has to be read again
    group, extra: of its pairs, where that is known beforehand
    content: whatever else tells that it has to be read again, where files of one size and time may change places
    """

    key: str
    files: tuple[Path, ...] = ()
    group: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    content: str = ""


@dataclass(frozen=True)
class Item:
    """A pair, and what `dataset.json` shall say about it besides: plane, tumour class, case, slice …"""

    pair: Pair
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def no_pools(_: Sequence[Record]) -> dict[str, list[str]]:
    """For sources that have no named parts."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Raw:
    """A download, ready to be prepared.

    name: of the dataset
    source: the kind of download, as on the command line
    licence: what is known about the terms of use
    classes: what the mask values 0, 1, … mean
    rules: every setting that decides what comes out; another value is another dataset
    read: the items of a unit; UserError names the file that is at fault
    pools: names of pairs by pool, from the records of all pairs
    regroup: sets groups that only the written pictures tell, given all records and the folder of the images
    notes: what the user has to know about the result; printed and written down
    lesion: the mask values that count as lesion; all but 0 where None
    merge_identical: give pairs with identical images one group; not where groups are patients already
    """

    name: str
    source: str
    licence: str
    classes: tuple[str, ...]
    units: Sequence[Unit]
    read: Callable[[Unit], Iterable[Item]]
    rules: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pools: Callable[[Sequence[Record]], dict[str, list[str]]] = no_pools
    regroup: Callable[[Sequence[Record], Path], None] | None = None
    notes: tuple[str, ...] = ()
    lesion: tuple[int, ...] | None = None
    merge_identical: bool = False

    def lesion_pixels(self, mask: np.ndarray) -> int:
        """How many pixels of a mask are lesion."""
        return int(np.count_nonzero(mask if self.lesion is None else np.isin(mask, self.lesion)))


def picture_items(unit: Unit, rule: MaskRule) -> Iterator[Item]:
    """The pair of a unit that is one image file and one mask file; without a mask file, an empty mask."""
    image_file, mask_file = unit.files[0], unit.files[-1]
    if len(unit.files) == 1:
        image = read_image(image_file)
        mask = np.zeros(image.shape[:2], dtype=np.uint8)
    else:
        image, mask = read_match(Match(image_file, mask_file, unit.key), rule)
    yield Item(Pair(image=image, mask=mask, name=unit.key, group=unit.group or unit.key), unit.extra)


def from_source(
    source: Source,
    *,
    name: str,
    licence: str,
    classes: tuple[str, ...],
    rules: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> Raw:
    """Any `Source` as something to prepare: one unit a pair."""
    where = {key: index for index, key in enumerate(source.names)}

    def read(unit: Unit) -> Iterator[Item]:
        yield Item(source.read(where[unit.key]))

    units = [Unit(key=key, group=group) for key, group in zip(source.names, source.groups, strict=True)]
    return Raw(
        name=name, source=name, licence=licence, classes=classes, rules=rules, units=units, read=read, notes=notes
    )
