"""Tensors that lie in shards, one on each process: how they are measured, gathered for a checkpoint, and cut again.

A shard is torch's DTensor, which FSDP makes of a parameter, and an optimiser of what it remembers of it. A checkpoint
holds whole tensors, so that it does not depend on who wrote it. Where nothing is sharded, nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def is_shard(value: Any) -> bool:
    """Whether this is one process's part of a tensor. Asked by what only a DTensor has: importing that takes long."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Float[Tensor, ""]:
    """The norm of all gradients as one vector, the same on every process."""
    found = [p.grad for p in parameters if p.grad is not None]
    own, shards = ([g for g in found if is_shard(g) is sharded] for sharded in (False, True))
    if not shards:
        return get_total_norm(own)
    over_all: Any = get_total_norm(shards)
    parts = [over_all.full_tensor(), *([get_total_norm(own)] if own else [])]
    return torch.linalg.vector_norm(torch.stack(parts))


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, norm: Float[Tensor, ""]) -> None:
    """Scale all gradients so that their norm, which is known, does not exceed the limit."""
    held = list(parameters)
    for sharded in (False, True):  # torch does not take both in one list
        clip_grads_with_norm_([p for p in held if is_shard(p.grad) is sharded], limit, norm)


@torch.no_grad()
def whole(value: Any, *, keep: bool) -> Any:
    """Nested state with every shard gathered: tensors on the CPU, or None on processes that do not keep them.

    All processes have to call this with the same state, in which the order of the keys is the same.
    """
    if isinstance(value, Mapping):
        return {key: whole(item, keep=keep) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(whole(item, keep=keep) for item in value)
    if not is_shard(value):
        return value
    gathered = value.full_tensor()
    return gathered.cpu() if keep else None


@torch.no_grad()
def shard_like(given: Any, own: Any) -> Any:
    """This process's part of a whole tensor, cut and placed as `own` is; anything else as it was given."""
    if not is_shard(own) or not isinstance(given, Tensor) or is_shard(given) or given.shape != own.shape:
        return given
    from torch.distributed.tensor import DTensor

    mesh, placements = own.device_mesh, own.placements
    assert mesh.ndim == 1, "one group of processes shares everything out"
    assert placements[0].is_shard(0), "along the first dimension"
    most = -(-len(given) // mesh.size())  # the last processes may get less, or nothing, as torch.chunk cuts
    first = min(mesh.get_local_rank() * most, len(given))
    local = given[first : first + most].to(device=own.device, dtype=own.dtype, copy=True)
    return DTensor.from_local(local, mesh, placements, shape=own.shape, stride=own.stride())


def cut_like(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`shard_like` for every entry, by name."""
    return {name: shard_like(value, own.get(name)) for name, value in given.items()}
