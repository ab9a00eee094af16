"""Randomness without history: every draw is a function of (seed, step, rank, stream).

    key(seed, step, rank, stream) = first 63 bits of SHA-256("laworder:1:seed:step:rank:stream")

A run that is resumed at step k therefore draws what it would have drawn, without replaying steps 1 … k − 1 and
without a generator state in the checkpoint. The order of the data comes from splitmix64, which NumPy and torch
releases cannot change.
"""

from __future__ import annotations

import functools
import hashlib
import random

import numpy as np
import torch
from jaxtyping import Int64, UInt64

from laworder.errors import UserError


def key(seed: int, *, step: int = 0, rank: int = 0, stream: str = "") -> int:
    """63 bits that depend on all four arguments, and on nothing else."""
    text = f"laworder:1:{int(seed)}:{int(step)}:{int(rank)}:{stream}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(
    seed: int, *, step: int = 0, rank: int = 0, stream: str = "", device: str | torch.device = "cpu"
) -> torch.Generator:
    """A torch generator for one purpose (`stream`) of one step on one rank."""
    return torch.Generator(device=device).manual_seed(key(seed, step=step, rank=rank, stream=stream))


def seed_all(seed: int, *, step: int = 0, rank: int = 0, stream: str = "") -> None:
    """Set the global generators of torch (all devices), NumPy and Python, for code that takes none: dropout, say."""
    bits = key(seed, step=step, rank=rank, stream=stream)
    torch.manual_seed(bits)
    np.random.seed([bits & 0xFFFFFFFF, bits >> 32])
    random.seed(bits)


def splitmix64(x: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """Steele, Lea & Flood (2014), figure 15: the n-th output for state x."""
    with np.errstate(over="ignore"):
        z = x * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@functools.lru_cache(maxsize=8)
def permutation(seed: int, epoch: int, n: int) -> Int64[np.ndarray, " n"]:
    """The order of n items in one epoch: 0 … n − 1 sorted by a hash. Read-only, because it is cached."""
    start = np.uint64(key(seed, step=epoch, stream="permutation"))
    with np.errstate(over="ignore"):
        hashes = splitmix64(start + np.arange(n, dtype=np.uint64))
    order = np.argsort(hashes, kind="stable").astype(np.int64)
    order.setflags(write=False)
    return order


def batch_indices(
    seed: int, batch: int, *, batch_size: int, n: int, rank: int = 0, world: int = 1
) -> Int64[np.ndarray, " batch_size"]:
    """Which items make up batch number `batch` (0, 1, 2 …) on one rank.

    The epochs' permutations form one endless sequence, from which batches are cut one after the other, rank by rank
    within a batch number. Each item therefore occurs exactly once an epoch, nothing is dropped and no batch is short;
    the price is that the batch at the seam of two epochs may hold an item twice. It also works where n < batch_size.
    """
    if n < 1:
        raise UserError("there is nothing to draw batches from: the dataset is empty")
    first = (batch * world + rank) * batch_size
    positions = np.arange(first, first + batch_size)
    epochs = positions // n
    picked = [permutation(seed, int(e), n)[positions[epochs == e] % n] for e in np.unique(epochs)]
    return np.concatenate(picked)
