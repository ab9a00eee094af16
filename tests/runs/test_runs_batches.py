"""Batches by number: the same for any number of workers, any way of starting them, and from any number on."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset
from toy_run import ITEMS, Augmented

from laworder.errors import UserError
from laworder.runs import Batches, batch_indices

# Python 3.12 and later warn of what loaders have always done.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def collect(first: int, last: int, *, rank: int = 0, world: int = 1, **options: Any) -> list[dict[str, Any]]:
    batches = Batches(dataset=Augmented(), batch_size=4, **options)
    return list(batches.iterate(first, last, seed=1, rank=rank, world=world))


def same(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> bool:
    return len(a) == len(b) and all(torch.equal(x[k], y[k]) for x, y in zip(a, b, strict=True) for k in x)


def test_batch_k_holds_the_items_of_batch_k() -> None:
    for k, batch in enumerate(collect(0, 7, rank=1, world=2)):
        assert batch["index"].tolist() == batch_indices(1, k, batch_size=4, n=ITEMS, rank=1, world=2).tolist()


def test_starting_late_gives_the_rest() -> None:
    assert same(collect(5, 9), collect(0, 9)[5:])
    assert not same(collect(5, 9), collect(4, 8))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_change_nothing_not_even_augmentation(start: str) -> None:
    assert same(collect(3, 8, workers=2, start=start), collect(3, 8))


def test_nothing_before_the_start_is_read() -> None:
    class Counting(TensorDataset):
        read = 0

        def __getitem__(self, i: int) -> Any:
            self.read += 1
            return super().__getitem__(i)

    data = Counting(torch.arange(10))
    assert len(list(Batches(dataset=data, batch_size=2).iterate(1000, 1002, seed=0))) == 2
    assert data.read == 4


class Signalled(Dataset[torch.Tensor]):
    """Its worker is hit by the signals that reach a whole process group."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        return torch.tensor(i)


@pytest.mark.parametrize("start", ["fork", "forkserver", None])
def test_workers_leave_stop_signals_to_their_parent(start: str | None) -> None:
    stream = Batches(dataset=Signalled(), batch_size=4, workers=1, start=start).iterate(0, 2, seed=0)
    assert sorted(torch.cat(list(stream)).tolist()) == list(range(8))


def test_epochs_to_steps() -> None:
    batches = Batches(dataset=Augmented(), batch_size=4)
    assert batches.steps(1) == 4
    assert batches.steps(100) == 325
    assert batches.steps(4, accumulate=2, world=2) == 4


@pytest.mark.parametrize(("options", "says"), [({"batch_size": 0}, "batch_size"), ({"workers": -1}, "workers")])
def test_wrong_sizes_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Batches(**{"dataset": Augmented(), "batch_size": 4, **options})


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        Batches(dataset=TensorDataset(torch.empty(0)), batch_size=1)
