"""One pass over the pairs: each is decoded once, and what is remembered of it is small."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from laworder.data.audit.alignment import SAMPLE, Thumb, thumb
from laworder.data.audit.components import label
from laworder.data.audit.fingerprints import Fingerprint, fingerprint
from laworder.data.audit.masks import SPECK, MaskFacts, mask_facts
from laworder.data.audit.survival import Fates, Grid, fates
from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.sources.matching import Match
from laworder.errors import UserError


@runtime_checkable
class FromFiles(Source, Protocol):
    """A source whose masks are files, so that their raw values can be looked at."""

    @property
    def pairs(self) -> Sequence[Match]: ...


@dataclass(frozen=True)
class Look:
    """What is kept of one pair. mask_digest: of the mask's pixels and its shape"""

    split: str
    index: int
    name: str
    group: str
    height: int
    width: int
    fingerprint: Fingerprint | None
    mask: MaskFacts
    fates: Fates
    mask_digest: str
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
        mask_digest=hashlib.sha256(f"{pair.mask.shape}\0".encode() + pair.mask.tobytes()).hexdigest(),
        thumb=thumb(index, pair.image, pair.mask) if seen and sample and count else None,
    )


def _mask_file(source: Source, index: int) -> Path | None:
    return source.pairs[index].mask if isinstance(source, FromFiles) else None
