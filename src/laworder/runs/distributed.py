"""The few things that the processes of one training have to agree on."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor


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
