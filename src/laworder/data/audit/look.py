"""One pass over the pairs: each is decoded once, and what is remembered of it is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8

from laworder.data.audit.alignment import SAMPLE, Thumb, thumb
from laworder.data.audit.components import label
from laworder.data.audit.duplicates import turn
from laworder.data.audit.fingerprints import Fingerprint, fingerprint
from laworder.data.audit.masks import SPECK, MaskFacts, mask_facts
from laworder.data.audit.survival import Fates, Grid, fates, nearest
from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.sources.matching import Match
from laworder.errors import UserError

_SHAPE = 64


@runtime_checkable
class FromFiles(Protocol):
    """A source whose masks are files, so that their raw values can be looked at."""

    @property
    def pairs(self) -> Sequence[Match]: ...


@dataclass(frozen=True)
class Look:
    """What is kept of one pair.

    shape: the mask at 64×64, one bit a pixel, to compare the labels of images that turn out to be the same
    """

    split: str
    index: int
    name: str
    group: str
    height: int
    width: int
    fingerprint: Fingerprint | None
    mask: MaskFacts
    fates: Fates
    shape: UInt8[np.ndarray, " bytes"]
    thumb: Thumb | None

    @property
    def full_name(self) -> str:
        """With its split: a name may occur in several."""
        return f"{self.split}/{self.name}"


def look_all(
    split: str, source: Source, wanted: Sequence[Grid], *, workers: int | None, progress: bool, seed: int
) -> tuple[list[Look], list[str]]:
    """A look at every pair of a source, and one line for each that cannot be read."""
    sampled = set(np.random.default_rng(seed).permutation(len(source))[:SAMPLE].tolist())
    looks: list[Look | None] = [None] * len(source)
    wrong: list[list[str]] = [[] for _ in range(len(source))]

    def put(index: int) -> None:
        try:
            looks[index] = look(split, source, index, wanted, sample=index in sampled)
        except UserError as error:
            wrong[index] = str(error).split("\n")

    over_cores(put, len(source), workers=workers, label=f"looking at {split}" if progress else None)
    return [one for one in looks if one is not None], [line for lines in wrong for line in lines]


def look(split: str, source: Source, index: int, wanted: Sequence[Grid], *, sample: bool) -> Look:
    """Read one pair, and keep what the audit needs. An image without channels is a mask alone."""
    pair = source.read(index)
    labels, count = label(pair.mask > 0)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:].astype(np.int32)
    seen = pair.image.shape[2] > 0
    return Look(
        split=split,
        index=index,
        name=pair.name,
        group=pair.group,
        height=pair.mask.shape[0],
        width=pair.mask.shape[1],
        fingerprint=fingerprint(pair.image) if seen else None,
        mask=mask_facts(pair.mask, labels, sizes, _mask_file(source, index)),
        fates=fates(labels, sizes, wanted, SPECK),
        shape=np.packbits(nearest(labels, _SHAPE) > 0),
        thumb=thumb(index, pair.image, pair.mask) if seen and sample and count else None,
    )


def _mask_file(source: Source, index: int) -> Path | None:
    return source.pairs[index].mask if isinstance(source, FromFiles) else None


def overlap(a: Look, b: Look, orientation: str = "upright") -> float:
    """Intersection over union of two masks at 64×64, the first one turned; 1 where both are empty."""
    first, second = (torch.from_numpy(np.unpackbits(one.shape).reshape(_SHAPE, _SHAPE)) > 0 for one in (a, b))
    first = turn(first, orientation)
    either = int((first | second).sum())
    return int((first & second).sum()) / either if either else 1.0
