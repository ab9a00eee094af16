"""The states of several runs, stacked: what an update changes, and its way into and out of each run's own modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor
from torch.optim import Optimizer

from laworder.segmentation.task import SegmentTask
from laworder.segmentation.together.packed import Packed
from laworder.segmentation.together.rules import RULES


@dataclass(frozen=True)
class Average:
    """Moving averages, laid out as what they are of; `count` as torch's `AveragedModel` counts."""

    theta: Tensor
    floats: Tensor
    counts: Tensor
    updates: Shaped[Tensor, " s"]


class Stack:
    """Parameters θ, buffers (floats; counters, which are integers), optimiser slots and moving averages of S runs.

    unused: parameters that the loss does not reach. A run by itself gives them no gradient and leaves them alone.
    """

    def __init__(self, tasks: Sequence[SegmentTask], unused: frozenset[str]) -> None:
        self.tasks, device = list(tasks), tasks[0].device
        self.theta = Packed([dict(t.model.named_parameters()) for t in tasks], device=device)
        self.floats = Packed([_buffers(t, floating=True) for t in tasks], device=device)
        self.counts = Packed([_buffers(t, floating=False) for t in tasks], device=device)
        slots = RULES[tasks[0].config.optimiser.name].slots
        self.slots = {slot: torch.zeros_like(self.theta.flat) for slot in slots}
        self.average: Average | None = None
        if tasks[0].ema is not None:
            self.average = Average(
                self.theta.flat.clone(),
                self.floats.flat.clone(),
                self.counts.flat.clone(),
                torch.zeros(len(tasks), device=device),
            )
        used = {name: torch.full((len(tasks), *shape), name not in unused) for name, shape in self.theta.shapes.items()}
        self.used: Bool[Tensor, " n"] = torch.cat([mask.flatten() for mask in used.values()]).to(device)
        self.unused = unused

    @torch.no_grad()
    def take(self, index: int) -> None:
        """Run `index`'s modules and optimiser → its place in the stack."""
        task = self.tasks[index]
        self.theta.put(index, dict(task.model.named_parameters()))
        self.floats.put(index, _buffers(task, floating=True))
        self.counts.put(index, _buffers(task, floating=False))
        state = task.optimizers["optimiser"].state
        for slot, flat in self.slots.items():
            views = self.theta.views(flat)
            for name, parameter in task.model.named_parameters():
                views[name][index].copy_(state[parameter][slot] if parameter in state else torch.tensor(0.0))
        if self.average is not None:
            assert task.ema is not None
            self.theta.put(index, dict(task.ema.module.named_parameters()), self.average.theta)
            self.floats.put(index, _buffers(task, floating=True, averaged=True), self.average.floats)
            self.counts.put(index, _buffers(task, floating=False, averaged=True), self.average.counts)
            self.average.updates[index] = float(task.ema.n_averaged)

    @torch.no_grad()
    def give(self, index: int, step: int) -> None:
        """Run `index`'s place in the stack, after `step` updates → its modules and optimiser."""
        task = self.tasks[index]
        _write(dict(task.model.named_parameters()), self.theta.member(index))
        _write(_buffers(task, floating=True), self.floats.member(index))
        _write(_buffers(task, floating=False), self.counts.member(index))
        slots = {slot: self.theta.member(index, flat) for slot, flat in self.slots.items()}
        optimiser = task.optimizers["optimiser"]
        for name, parameter in task.model.named_parameters():
            if step and name not in self.unused:
                optimiser.state[parameter].update({slot: values[name] for slot, values in slots.items()})
        _count(optimiser, step)
        if self.average is not None:
            assert task.ema is not None
            _write(dict(task.ema.module.named_parameters()), self.theta.member(index, self.average.theta))
            _write(_buffers(task, floating=True, averaged=True), self.floats.member(index, self.average.floats))
            _write(_buffers(task, floating=False, averaged=True), self.counts.member(index, self.average.counts))
            task.ema.n_averaged.fill_(step)


def _buffers(task: SegmentTask, *, floating: bool, averaged: bool = False) -> dict[str, Tensor]:
    model = task.ema.module if averaged and task.ema is not None else task.model
    return {name: b for name, b in model.named_buffers() if b.is_floating_point() == floating}


def _write(into: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])


def _count(optimiser: Optimizer, step: int) -> None:
    """AdEMAMix counts its updates in the group, AdamW at each parameter."""
    if not step:
        return
    for group in optimiser.param_groups:
        if "weight_decouple" in group:
            group["step"] = step
        else:
            for parameter in group["params"]:
                if parameter in optimiser.state:
                    optimiser.state[parameter]["step"] = torch.tensor(float(step))
