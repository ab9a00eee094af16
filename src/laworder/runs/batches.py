"""Batches by number: batch k is the same whoever asks for it, and whenever."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from laworder.errors import UserError
from laworder.runs.randomness import batch_indices, seed_all

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Positions(Dataset[int]):
    """The numbers 0 … count − 1, for data that is gathered elsewhere, a batch of positions at a time."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> int:
        return position


@dataclass(frozen=True)
class _Numbered(Dataset[Any]):
    """A dataset whose items are whole batches, so that a loader's workers need no state."""

    dataset: Dataset[Any]
    batch_size: int
    collate: Callable[[list[Any]], Any]
    seed: int
    rank: int
    world: int

    def __getitem__(self, batch: int) -> Any:
        n = len(cast("Sized", self.dataset))
        where = {"rank": self.rank, "world": self.world}
        indices = batch_indices(self.seed, batch, batch_size=self.batch_size, n=n, **where)
        # Augmentation inside the dataset may use the global generators; it must not know in which worker it runs.
        seed_all(self.seed, step=batch, rank=self.rank, stream="data")
        return self.collate([self.dataset[int(i)] for i in indices])


def _start_worker(_: int) -> None:
    # Ctrl-C reaches the whole process group. The parent decides what it means: it finishes its step, for which it
    # needs its workers. They leave when the loader closes, or when they see that their parent has died.
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """How a dataset is cut into batches.

    dataset:    map-style; an item should depend on its index (and on the global generators, which are seeded)
    batch_size: items in one micro-batch on one rank
    workers:    processes that load ahead; the batches are the same for any number of them
    start:      how workers are started: "fork", "spawn" or "forkserver"; the platform's default where None
    pin:        put batches into page-locked memory, for CUDA
    """

    dataset: Dataset[Any]
    batch_size: int
    workers: int = 0
    start: str | None = None
    pin: bool = False
    collate: Callable[[list[Any]], Any] = default_collate

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"batch_size must be at least 1, not {self.batch_size}")
        if self.workers < 0:
            raise UserError(f"workers must be 0 or more, not {self.workers}")
        if len(cast("Sized", self.dataset)) < 1:
            raise UserError("there is nothing to draw batches from: the dataset is empty")

    def steps(self, epochs: float, *, accumulate: int = 1, world: int = 1) -> int:
        """Updates that show every item `epochs` times (rounded up)."""
        return math.ceil(epochs * len(cast("Sized", self.dataset)) / (self.batch_size * accumulate * world))

    def iterate(self, first: int, last: int, *, seed: int, rank: int = 0, world: int = 1) -> Iterator[Any]:
        """Batches number `first` … `last` − 1. Nothing before `first` is read or drawn."""
        numbered = _Numbered(self.dataset, self.batch_size, self.collate, seed, rank, world)
        loader = DataLoader(
            numbered,
            batch_size=None,
            sampler=range(first, last),
            num_workers=self.workers,
            multiprocessing_context=self.start if self.workers else None,
            worker_init_fn=_start_worker,
            pin_memory=self.pin,
            generator=torch.Generator(),
        )
        ahead = _iterate_blocking_signals(loader) if self.workers else iter(loader)
        yield from ahead


def _iterate_blocking_signals(loader: DataLoader[Any]) -> Iterator[Any]:
    """Start the workers with the stop signals blocked, so that none is hit before it can ignore them.

    A forked or spawned worker inherits that; one from a fork server inherits nothing of ours, and the server itself,
    which others may use, must not.
    """
    if _start_method(loader) == "forkserver":
        forkserver.ensure_running()
    if threading.current_thread() is not threading.main_thread():
        return iter(loader)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_method(loader: DataLoader[Any]) -> str:
    context = loader.multiprocessing_context or multiprocessing
    return context.get_start_method()
