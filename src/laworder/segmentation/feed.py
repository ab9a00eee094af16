"""Where training batches come from: arrays in the device's memory while they fit, else a memory-mapped file.

A batch is asked for by positions in the training set. Which of the two holds the pairs changes nothing in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import UInt8
from torch import Tensor

from laworder.data.cache import GB, Batch, PairCache
from laworder.data.load import load_arrays
from laworder.data.pairs import Source
from laworder.errors import UserError
from laworder.runs import Batches, batch_indices
from laworder.runs.batches import Positions


class Feed(Protocol):
    """A training set whose pairs are handed out by position."""

    @property
    def names(self) -> Sequence[str]: ...

    def gather(self, positions: Sequence[int]) -> Batch: ...

    def close(self) -> None: ...


class HeldFeed:
    """All pairs in the memory of one device."""

    def __init__(self, images: torch.Tensor, masks: torch.Tensor, names: list[str], device: torch.device) -> None:
        self.images, self.masks, self.names = images.to(device), masks.to(device), names

    def gather(self, positions: Sequence[int]) -> Batch:
        where = torch.tensor(positions)
        rows = where.to(self.images.device)
        return Batch(self.images[rows], self.masks[rows], where)

    def close(self) -> None:
        """Nothing to let go of."""


class StreamedFeed:
    """Pairs behind a file of limited size. Masks are checked as they come: nobody has seen them all before."""

    def __init__(self, cache: PairCache, classes: int) -> None:
        self.cache, self.classes = cache, classes

    @property
    def names(self) -> list[str]:
        return self.cache.names

    def gather(self, positions: Sequence[int]) -> Batch:
        batch = self.cache.gather(positions)
        check_classes(batch.masks, [self.names[position] for position in positions], self.classes)
        return batch

    def close(self) -> None:
        self.cache.close()


def open_feed(
    source: Source,
    indices: Sequence[int],
    *,
    size: int,
    channels: int,
    classes: int,
    cache_gb: float,
    device: torch.device,
) -> Feed:
    """The training pairs: held on `device` up to `cache_gb`·10⁹ bytes, beyond that through a file of that size."""
    if len(indices) * (channels + 1) * size**2 <= cache_gb * GB:
        pairs = load_arrays(source, size, channels, indices)
        check_classes(pairs.masks, pairs.names, classes)
        check_lesions(pairs.masks)
        return HeldFeed(*pairs, device)
    cache = PairCache(source, size=size, channels=channels, indices=indices, cache_gb=cache_gb)
    return StreamedFeed(cache, classes)


def check_classes(masks: UInt8[Tensor, "b 1 h w"], names: Sequence[str], classes: int) -> None:
    """Refuse masks with a class that the model does not have; one class means lesion or not, whatever the value."""
    highest = masks.flatten(1).amax(1)
    if classes > 1 and int(highest.max()) >= classes:
        worst = int(highest.argmax())
        raise UserError(
            f"the mask of {names[worst]} holds class {int(highest[worst])}, but classes is {classes} (0 to "
            f"{classes - 1}, background included); set classes to {int(highest.max()) + 1}, or to 1 for lesion or not"
        )


def check_lesions(masks: UInt8[Tensor, "b 1 h w"]) -> None:
    """Refuse a training set without a single pixel of lesion: the answer would be silence."""
    if not bool(masks.any()):
        raise UserError(
            f"all {len(masks)} training masks are empty at this size: there is no lesion to learn; "
            "`laworder data audit` says what the masks hold"
        )


@dataclass(frozen=True, kw_only=True)
class FedBatches(Batches):
    """Batches of a feed, in `Batches`' order. From a file, the next one is gathered while the one at hand is used.

    A feed draws no random number, so that nothing is seeded here: a thread that did would change the draws of training.
    """

    feed: Feed

    def iterate(self, first: int, last: int, *, seed: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        numbers = range(first, last)
        whose = {"n": len(self.feed.names), "rank": rank, "world": world}
        chosen = (batch_indices(seed, number, batch_size=self.batch_size, **whose).tolist() for number in numbers)
        if isinstance(self.feed, HeldFeed):
            return (self.feed.gather(positions) for positions in chosen)
        return _ahead(self.feed, chosen)


def fed_batches(feed: Feed, batch_size: int) -> FedBatches:
    """How a feed is cut into batches of one process."""
    return FedBatches(dataset=Positions(len(feed.names)), batch_size=batch_size, feed=feed)


def _ahead(feed: Feed, chosen: Iterator[list[int]]) -> Iterator[Batch]:
    with ThreadPoolExecutor(1) as worker:
        coming = [worker.submit(feed.gather, positions) for positions in itertools.islice(chosen, 1)]
        while coming:
            ready = coming.pop().result()
            coming += [worker.submit(feed.gather, positions) for positions in itertools.islice(chosen, 1)]
            yield ready
