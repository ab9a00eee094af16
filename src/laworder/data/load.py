"""Small sets held in memory, and a fingerprint of any source for manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from laworder.data.pairs import PairDataset, Source
from laworder.data.parallel import over_cores
from laworder.errors import UserError


class Arrays(NamedTuple):
    """A whole set at one size: uint8 images, uint8 masks of class indices, and names in the same order."""

    images: UInt8[Tensor, "n c size size"]
    masks: UInt8[Tensor, "n 1 size size"]
    names: list[str]


def load_arrays(
    source: Source,
    size: int,
    channels: int = 3,
    indices: Sequence[int] | None = None,
    *,
    workers: int | None = None,
    progress: bool = True,
) -> Arrays:
    """Decode and resize `indices` of a source (all by default) into memory, over the machine's cores.

    A progress bar is shown on a terminal and nowhere else. The result does not depend on `workers`.
    """
    dataset = PairDataset(source, size=size, channels=channels, indices=indices)
    if len(dataset) == 0:
        raise UserError("there is nothing to load: the source, or the part of it asked for, holds no pair")
    images = torch.empty((len(dataset), channels, size, size), dtype=torch.uint8)
    masks = torch.empty((len(dataset), 1, size, size), dtype=torch.uint8)

    def put(position: int) -> None:
        item = dataset[position]
        images[position], masks[position] = item["image"], item["mask"]

    over_cores(put, len(dataset), workers=workers, label="loading" if progress else None)
    return Arrays(images, masks, dataset.names)


def source_hash(source: Source, *, workers: int | None = None) -> str:
    """SHA-256 of all that a source yields: names, groups, shapes and bytes of images and masks, in its order."""
    digests = [b""] * len(source)

    def put(index: int) -> None:
        pair = source.read(index)
        one = hashlib.sha256(f"{pair.name}\0{pair.group}\0{pair.image.shape}\0{pair.mask.shape}\0".encode())
        one.update(pair.image.tobytes())
        one.update(pair.mask.tobytes())
        digests[index] = one.digest()

    over_cores(put, len(source), workers=workers)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def lesion_fractions(source: Source, *, workers: int | None = None) -> list[float]:
    """The share of each pair's pixels that is not background, for splits stratified by lesion area."""
    fractions = [0.0] * len(source)

    def put(index: int) -> None:
        fractions[index] = float((source.read(index).mask > 0).mean())

    over_cores(put, len(source), workers=workers)
    return fractions
