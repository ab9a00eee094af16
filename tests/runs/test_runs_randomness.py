"""Draws are a function of (seed, step, rank, stream); frozen values; independence; the order of the data."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laworder.errors import UserError
from laworder.runs import batch_indices, generator, permutation, seed_all
from laworder.runs.randomness import key, splitmix64

GOLDEN_KEYS = [4416980888244420494, 3262131978616695910]
GOLDEN_ORDERS = [[1, 2, 8, 7, 4, 3, 0, 6, 9, 5], [6, 3, 2, 7, 4, 5, 8, 0, 1, 9], [7, 6, 3, 0, 1, 8, 2, 5, 4, 9]]
GOLDEN_NOISE = [0.9852663278579712, -0.12253599613904953, -0.555544912815094]


def testsplitmix64_is_the_published_one() -> None:
    assert int(splitmix64(np.array([1], dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_frozen_values() -> None:
    """A change here changes every run ever made."""
    assert key(0) == GOLDEN_KEYS[0]
    assert key(7, step=3, rank=2, stream="noise/1") == GOLDEN_KEYS[1]
    assert permutation(0, 0, 10).tolist() == GOLDEN_ORDERS[0]
    assert permutation(0, 1, 10).tolist() == GOLDEN_ORDERS[1]
    assert permutation(1, 0, 10).tolist() == GOLDEN_ORDERS[2]
    drawn = torch.randn(3, generator=generator(0, step=1, stream="noise"))
    torch.testing.assert_close(drawn, torch.tensor(GOLDEN_NOISE), rtol=0, atol=1e-6)


def test_every_argument_matters_and_nothing_else() -> None:
    arguments = itertools.product(range(5), range(20), range(4), ("", "a", "b"))
    keys = {key(seed, step=step, rank=rank, stream=stream) for seed, step, rank, stream in arguments}
    assert len(keys) == 5 * 20 * 4 * 3
    assert all(0 <= k < 2**63 for k in keys)
    torch.rand(10)
    assert key(1, step=1) == key(1, step=1)


def test_neighbouring_steps_and_ranks_are_uncorrelated() -> None:
    n = 20_000
    base = torch.randn(n, generator=generator(0, step=5))
    for other in (
        generator(0, step=6),
        generator(0, step=5, rank=1),
        generator(1, step=5),
        generator(0, step=5, stream="x"),
    ):
        correlation = torch.corrcoef(torch.stack([base, torch.randn(n, generator=other)]))[0, 1]
        assert abs(float(correlation)) < 4 / n**0.5


def test_first_draws_over_steps_look_uniform() -> None:
    """Each step's generator is fresh: its first draw must not drift from step to step."""
    first = torch.tensor([float(torch.rand(1, generator=generator(0, step=s))) for s in range(2000)])
    counts = torch.histc(first, bins=10, min=0, max=1)
    assert float(((counts - 200) ** 2 / 200).sum()) < 27.9  # chi² with 9 degrees of freedom, p = 0.001
    assert abs(float(torch.corrcoef(torch.stack([first[1:], first[:-1]]))[0, 1])) < 4 / 2000**0.5


def test_seed_all_sets_the_three_global_generators() -> None:
    def draw() -> tuple[float, float, float]:
        return float(torch.rand(1)), float(np.random.rand()), random.random()

    seed_all(0, step=3, rank=1, stream="train")
    first = draw()
    assert draw() != first
    seed_all(0, step=3, rank=1, stream="train")
    assert draw() == first
    seed_all(0, step=4, rank=1, stream="train")
    assert all(a != b for a, b in zip(draw(), first, strict=True))


def test_a_permutation_is_one_and_each_place_gets_each_item_alike() -> None:
    counts = np.zeros((6, 6))
    for epoch in range(3000):
        order = permutation(0, epoch, 6)
        assert sorted(order) == list(range(6))
        counts[np.arange(6), order] += 1
    assert float(((counts - 500) ** 2 / 500).sum()) < 52.6  # chi² with 25 degrees of freedom, p = 0.001
    with pytest.raises(ValueError, match="read-only"):
        permutation(0, 0, 6)[0] = 1


@given(
    n=st.integers(1, 40),
    size=st.integers(1, 9),
    world=st.integers(1, 4),
    seed=st.integers(0, 5),
    start=st.integers(0, 9),
)
def test_batches_show_every_item_once_an_epoch_over_all_ranks(
    n: int, size: int, world: int, seed: int, start: int
) -> None:
    batches = -(-3 * n // (size * world))
    stream = [
        int(i)
        for batch in range(batches)
        for rank in range(world)
        for i in batch_indices(seed, batch, batch_size=size, n=n, rank=rank, world=world)
    ]
    assert len(stream) == batches * size * world
    for epoch in range(3):
        assert stream[epoch * n : (epoch + 1) * n] == permutation(seed, epoch, n).tolist()
    again = batch_indices(seed, start, batch_size=size, n=n, world=world)
    position = start * world * size
    whole = [int(i) for e in range(position // n, (position + size) // n + 1) for i in permutation(seed, e, n)]
    assert again.tolist() == whole[position % n : position % n + size]


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        batch_indices(0, 0, batch_size=2, n=0)
