"""Decoded pairs in a memory-mapped file: after the first epoch a batch is a copy, whatever the size of the set.

A pair takes (C + 1)·size² bytes, image planes and then the mask. The file holds as many pairs as `cache_gb` allows, the
first ones of the set; the rest is decoded each time. Nothing is evicted: an epoch visits every pair once, so that a
cache which forgets the oldest would forget each pair just before it is needed again.

The order is a function of (seed, epoch) alone, and what is read is a function of the order: neither the cache's size
nor the number of threads changes a batch.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from laworder.data.pairs import PairDataset, Source
from laworder.data.prepared import PreparedSource
from laworder.data.sources.images import shown
from laworder.errors import UserError
from laworder.runs import WriteError, atomic_write, permutation

GB = 10**9


class Batch(NamedTuple):
    """Pairs as they come from the cache: uint8, on the CPU, with their positions in the set."""

    images: UInt8[Tensor, "b c size size"]
    masks: UInt8[Tensor, "b 1 size size"]
    positions: Int64[Tensor, " b"]


class PairCache:
    """Pairs of a source at one size, decoded once.

    size, channels, indices: as for `PairDataset`
    cache_gb: largest size of the cache, in units of 10⁹ bytes
    folder: where the cache is kept for the next run, for prepared data only (its hashes tell whether it still fits);
        without, it is a temporary file that goes with the process, however that ends
    workers: threads that decode; one a core by default
    """

    def __init__(
        self,
        source: Source,
        *,
        size: int,
        channels: int = 3,
        indices: Sequence[int] | None = None,
        cache_gb: float = 4.0,
        folder: Path | None = None,
        workers: int | None = None,
    ) -> None:
        if not cache_gb >= 0:
            raise UserError(f"cache_gb must be 0 or more, not {cache_gb}")
        self.dataset = PairDataset(source, size=size, channels=channels, indices=indices)
        if len(self.dataset) == 0:
            raise UserError("there is nothing to load: the source, or the part of it asked for, holds no pair")
        self.shape = (channels + 1, size, size)
        self.capacity = min(len(self.dataset), int(cache_gb * GB) // int(np.prod(self.shape)))
        self.file: Path | None = None if folder is None else self._named(folder)
        self._filled = self._remembered()
        self._news = False
        self._handle = self._reserve()
        self._pairs = self._map()
        self._pool = ThreadPoolExecutor(workers or min(os.cpu_count() or 1, 16))
        self._ahead = ThreadPoolExecutor(1)

    def __len__(self) -> int:
        return len(self.dataset)

    def __enter__(self) -> PairCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def names(self) -> list[str]:
        """Names of the pairs, in their order."""
        return self.dataset.names

    @property
    def cached(self) -> int:
        """How many pairs are in the cache now."""
        return int(self._filled.sum())

    def gather(self, positions: Sequence[int] | Int64[np.ndarray, " b"]) -> Batch:
        """The pairs at these positions, in this order; what is not in the cache yet is decoded and put there."""
        where = np.array(positions, dtype=np.int64)  # a copy: torch wants to be able to write
        inside = where < self.capacity
        missing = np.unique(where[inside & ~self._filled[np.where(inside, where, 0)]]) if self.capacity else where[:0]
        for position, pair in zip(missing, self._pool.map(self._decode, missing.tolist()), strict=True):
            self._pairs[position] = torch.from_numpy(pair)
            self._filled[position] = self._news = True
        rows = torch.from_numpy(where)
        if inside.all():
            pairs = self._pairs.index_select(0, rows)
        else:
            pairs = torch.empty((len(where), *self.shape), dtype=torch.uint8)
            within, outside = np.flatnonzero(inside), np.flatnonzero(~inside)
            pairs[torch.from_numpy(within)] = self._pairs.index_select(0, rows[torch.from_numpy(within)])
            for row, pair in zip(outside, self._pool.map(self._decode, where[outside].tolist()), strict=True):
                pairs[row] = torch.from_numpy(pair)
        return Batch(pairs[:, :-1], pairs[:, -1:], rows)

    def epoch(self, number: int, *, batch_size: int, seed: int = 0) -> Iterator[Batch]:
        """All pairs once, in the order of (seed, epoch); the last batch may be short. The next one is made ahead."""
        if batch_size < 1:
            raise UserError(f"batch_size must be at least 1, not {batch_size}")
        order = permutation(seed, number, len(self))
        parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        coming = self._ahead.submit(self.gather, parts[0])
        for after in [*parts[1:], None]:
            ready = coming.result()
            if after is not None:
                coming = self._ahead.submit(self.gather, after)
            yield ready
        self.flush()

    def flush(self) -> None:
        """Make what is cached last, where the cache is kept: first the pairs, then the word that they are there."""
        if self.file is None or self._handle is None or not self._news:
            return
        self._memory.flush()
        self._news = False
        atomic_write(self.file.with_suffix(".filled"), self._filled.tobytes())

    def close(self) -> None:
        """Keep what is to be kept, and let go of the file."""
        if self._handle is None and self.capacity:
            return
        self._ahead.shutdown(cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)
        self.flush()
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _decode(self, position: int) -> UInt8[np.ndarray, "planes size size"]:
        item = self.dataset[position]
        return torch.cat([item["image"], item["mask"]]).numpy()

    def _named(self, folder: Path) -> Path:
        """The cache's file: another one for other data, another size or other channels."""
        source = self.dataset.source
        if not isinstance(source, PreparedSource):
            raise UserError("a cache is kept for prepared data only; run `laworder data prepare` first, or keep none")
        digest = hashlib.sha256(f"laworder-cache/1 {self.shape} {self.capacity}".encode())
        for index in self.dataset.indices:
            record = source.records[index]
            digest.update(f"\n{record['name']} {record['image_sha256']} {record['mask_sha256']}".encode())
        return folder / f"{digest.hexdigest()[:32]}.pairs"

    def _remembered(self) -> np.ndarray:
        """Which pairs an earlier run left in the file."""
        if self.file is not None and self.file.is_file() and self.file.stat().st_size == self._bytes():
            mark = self.file.with_suffix(".filled")
            content = mark.read_bytes() if mark.is_file() else b""
            if len(content) == self.capacity and not content.strip(b"\0\1"):
                return np.frombuffer(content, dtype=np.bool_).copy()
        return np.zeros(self.capacity, dtype=np.bool_)

    def _bytes(self) -> int:
        return self.capacity * int(np.prod(self.shape))

    def _reserve(self) -> IO[bytes] | None:
        """A file with room for all of it: a disk that is full later would end the process without a word."""
        if not self.capacity:
            return None
        handle: IO[bytes] | None = None
        try:
            if self.file is None:
                handle = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the cache)
            else:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                handle = os.fdopen(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            _allocate(handle.fileno(), self._bytes())
        except OSError as error:
            if handle is not None:
                handle.close()
            where = shown(self.file or tempfile.gettempdir())
            raise WriteError(
                f"no room for a cache of {self._bytes() / GB:.1f} GB at {where}: {error.strerror}; lower cache_gb"
            ) from error
        return handle

    def _map(self) -> UInt8[Tensor, "n planes size size"]:
        if self._handle is None:
            return torch.empty((0, *self.shape), dtype=torch.uint8)
        self._memory = np.memmap(self._handle, dtype=np.uint8, mode="r+", shape=(self.capacity, *self.shape))
        return torch.from_numpy(self._memory)


def _allocate(handle: int, size: int) -> None:
    """Room for `size` bytes, in earnest where the system has a call for that (macOS has none)."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)
