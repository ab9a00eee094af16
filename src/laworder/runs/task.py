"""What the training loop has to know about the thing that is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laworder.errors import UserError
from laworder.runs.shards import cut_like, shard_like, whole


class Task(ABC):
    """Base of everything that `train_loop` trains: subclass it and write `micro_step`.

    modules:    name → module; saved and restored (put an EMA copy in here, and the bare module of a wrapped one)
    optimizers: name → optimiser; stepped, saved and restored
    sharded:    the tensors lie in shards, one on each process: all processes take part where one writes them
    """

    sharded = False

    def __init__(self, *, modules: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        self.modules, self.optimizers = dict(modules), dict(optimizers)

    @abstractmethod
    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """The mean loss of one micro-batch (a scalar) and its named parts, for the log.

        Called with the global generators seeded for (seed, step, rank, micro). `step` counts from 1: it is the number
        that this update will have in the log; `micro` counts from 0 to accumulate − 1.
        """

    def after_backward(self, step: int) -> None:  # noqa: B027
        """Called once an update, behind its last backward pass and before gradients are measured and clipped: where
        several processes share the batch and no wrapper averages their gradients, this does."""

    def after_step(self, step: int) -> None:  # noqa: B027
        """Called after each update: a moving average of the weights belongs here."""

    def names(self, batch: Any) -> list[str]:
        """What the images of a batch are called, for messages. Reads `name` or `index` of a dict batch."""
        if isinstance(batch, Mapping):
            if "name" in batch:
                return [str(name) for name in batch["name"]]
            if "index" in batch:
                return [f"#{int(index)}" for index in batch["index"]]
        return []

    def extra_state(self) -> dict[str, Any]:
        """Anything else that has to survive: numbers, strings, lists, tensors."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restore what `extra_state` gave."""


def capture(task: Task, *, keep: bool = True) -> dict[str, Any]:
    """The state of a task as a checkpoint keeps it; without `keep` only what is needed for others to have it."""
    state = {
        "modules": {name: module.state_dict() for name, module in task.modules.items()},
        "optimizers": {name: optimizer.state_dict() for name, optimizer in task.optimizers.items()},
        "extra": task.extra_state(),
    }
    return whole(state, keep=keep) if task.sharded else state


def restore(task: Task, state: Mapping[str, Any]) -> None:
    """Put a captured state back, on whatever device the task's modules are."""
    for kind, present in (("modules", task.modules), ("optimizers", task.optimizers)):
        if set(state[kind]) != set(present):
            held, wanted = sorted(state[kind]), sorted(present)
            raise UserError(f"the checkpoint holds {kind} {held}, the run has {wanted}: it is of another kind of run")
    for name, module in task.modules.items():
        try:
            module.load_state_dict(cut_like(state["modules"][name], module.state_dict()))
        except RuntimeError as error:
            raise UserError(f"the checkpoint's {name} does not fit the model: {error}") from error
    for name, optimizer in task.optimizers.items():
        _restore_optimizer(optimizer, state["optimizers"][name], name)
    task.load_extra_state(state["extra"])


def _restore_optimizer(optimizer: Optimizer, state: dict[str, Any], name: str) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    held = {
        index: {key: shard_like(value, parameter) for key, value in state["state"][index].items()}
        for index, parameter in enumerate(parameters)
        if index in state["state"]
    }
    try:
        optimizer.load_state_dict({**state, "state": held})
    except ValueError as error:
        raise UserError(f"the checkpoint's {name} does not fit the optimiser: {error}") from error
    # torch casts the state to the parameters' dtype, which loses bits where an optimiser keeps fp32 for bf16 weights.
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, saved in held.items():
        now = optimizer.state[parameters[index]]
        for key, value in saved.items():
            if isinstance(value, Tensor) and now[key].dtype != value.dtype:
                now[key] = value.to(now[key].device)


class BufferGuard:
    """A copy of all buffers (running means, counters), which a forward pass changes even if no update follows."""

    def __init__(self, task: Task) -> None:
        self._buffers = [buffer for module in task.modules.values() for buffer in module.buffers()]
        self._kept = [torch.empty_like(buffer) for buffer in self._buffers]

    def keep(self) -> None:
        """Remember the buffers as they are now."""
        for kept, buffer in zip(self._kept, self._buffers, strict=True):
            kept.copy_(buffer)

    def put_back(self) -> None:
        """Make them what they were."""
        for kept, buffer in zip(self._kept, self._buffers, strict=True):
            buffer.copy_(kept)
