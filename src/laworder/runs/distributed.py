"""The few things that the processes of one training have to agree on, and how they find each other.

A process is one of several where `torchrun` or `accelerate launch` started it; both say so in the same way, which torch
reads by itself. Every command that trains asks `processes()` and otherwise knows nothing of launchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from laworder.errors import UserError

PATIENCE = timedelta(hours=3)
"""How long one process waits for the others: rank 0 may be loading or validating meanwhile."""


@dataclass(frozen=True)
class Place:
    """Which process this is. rank: of `world`, over all machines; local: its number on this machine, hence its GPU."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this process is the one that speaks and writes."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own: several processes on a machine take one GPU each."""
        if self.world == 1 or device.type != "cuda":
            return device
        if self.local >= torch.cuda.device_count():
            raise UserError(
                f"process {self.local} of this machine has no GPU: torch sees {torch.cuda.device_count()}; start as "
                "many processes as there are GPUs"
            )
        return torch.device("cuda", self.local)


@contextmanager
def processes() -> Iterator[Place]:
    """Join the processes that a launcher started, and leave them in the end; alone without one."""
    if dist.is_available() and dist.is_initialized():  # whoever called us has joined already
        yield _own_place()
    elif dist.is_available() and dist.is_torchelastic_launched():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
        try:
            yield _own_place()
        finally:
            dist.destroy_process_group()
    else:
        yield Place()


def _own_place() -> Place:
    local = dist.get_node_local_rank(0)  # pyright: ignore[reportPrivateImportUsage] documented as torch.distributed's
    return Place(dist.get_rank(), dist.get_world_size(), local)


def mean_over_ranks(values: Float[Tensor, " n"], world: int) -> Float[Tensor, " n"]:
    """The mean over all ranks; the values themselves where there is one."""
    if world == 1:
        return values
    assert dist.is_initialized(), "world > 1 needs an initialised process group"
    total = values.clone()
    dist.all_reduce(total)
    return total / world


def from_first(value: int, world: int, device: torch.device) -> int:
    """Rank 0's value, on every rank."""
    if world == 1:
        return value
    assert dist.is_initialized(), "world > 1 needs an initialised process group"
    shared = torch.tensor(value, device=device)
    dist.broadcast(shared, src=0)
    return int(shared)


def numbers_from_first(values: Sequence[float] | None, count: int, world: int, device: torch.device) -> list[float]:
    """Rank 0's `count` numbers, to the bit, on every rank; the others have none and give None."""
    if world == 1:
        assert values is not None
        return list(values)
    assert dist.is_initialized(), "world > 1 needs an initialised process group"
    shared = torch.tensor([0.0] * count if values is None else values, dtype=torch.float64, device=device)
    assert len(shared) == count, "every rank knows how many numbers are coming"
    dist.broadcast(shared, src=0)
    return shared.tolist()


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter], world: int) -> None:
    """The mean of every gradient over all ranks, in one exchange for each dtype.

    For equal shares of a batch this is the whole batch's gradient. Nothing is overlapped with the backward pass, which
    costs little as long as the network is small beside its activations, as ORDER is.
    """
    if world == 1:
        return
    assert dist.is_initialized(), "world > 1 needs an initialised process group"
    gradients = [p.grad for p in parameters if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in gradients):
        own = [g for g in gradients if g.dtype == dtype]
        flat = torch.cat([g.reshape(-1) for g in own])
        dist.all_reduce(flat)
        flat /= world
        for gradient, mean in zip(own, flat.split([g.numel() for g in own]), strict=True):
            gradient.copy_(mean.view_as(gradient))
