"""When a batch does not fit into the device's memory: find out what does, and say so in one line."""

from __future__ import annotations

import torch
from torch import Tensor

from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.task import DiffuseTask
from laworder.errors import UserError


def too_large(task: DiffuseTask, config: TrainConfig, *, looking: bool = False) -> UserError:
    """The error to raise after an update, or a look at it, ran out of memory. The trials change no weights."""
    if looking:
        return UserError(
            f"watch.batch: drawing {config.watch.batch} images at once does not fit into the memory of {task.device}; "
            "set --watch.batch lower, and the same command goes on from the last checkpoint"
        )
    world = task.place.world
    share = config.batch // (config.accumulate * world)
    what = f"batch: {share} images at {config.side}² at once do not fit into the memory of {task.device}"
    if task.sharded:  # a trial would wait for the other processes, where it may have fitted
        first = "" if config.network.gradient_checkpointing else "go on with --network.gradient-checkpointing; or, "
        return UserError(
            f"{what}: {first}in a new --out, use --accumulate above {config.accumulate}, which computes the same batch "
            "in more parts, or more processes"
        )
    fits = largest_that_fits(task, share - 1)
    if fits == 0:
        advice = "not even one does: train smaller images (--size), in --precision bf16, or on a larger device"
        if not config.network.gradient_checkpointing:
            advice += ", or with --network.gradient-checkpointing"
        return UserError(f"{what}, and {advice}")
    parts = next(n for n in range(config.accumulate + 1, config.batch + 1) if _shared(config.batch, n, world, fits))
    return UserError(
        f"{what}; {fits} do: use --accumulate {parts}, which computes the same batch of {config.batch} in parts, "
        f"or --batch {fits * world}; or --network.gradient-checkpointing; each in a new --out"
    )


def _shared(batch: int, parts: int, world: int, fits: int) -> bool:
    return batch % (parts * world) == 0 and batch // (parts * world) <= fits


def largest_that_fits(task: DiffuseTask, most: int) -> int:
    """The largest number of images up to `most` whose forward and backward pass fit; 0 where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(task, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(task: DiffuseTask, images: int) -> bool:
    for parameter in task.learning:
        parameter.grad = None
    state: list[Tensor] = []
    try:
        if not any(rule.state for rule in task.optimizers.values()):  # before the first update it takes no memory yet
            state = [torch.empty_like(p) for p in task.learning for _ in range(2)]
        positions = torch.arange(images) % len(task.store.names)
        task.micro_step(positions, 1, 0)[0].backward()
    except torch.OutOfMemoryError:
        return False
    finally:
        state.clear()
        for parameter in task.learning:
            parameter.grad = None
        if task.device.type == "cuda":
            torch.cuda.empty_cache()
    return True
