"""One update of all members: a function of tensors, compiled if asked for, replayed as one CUDA graph on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.func import functional_call, vmap

from laworder.data.augment import Draw, apply
from laworder.segmentation.task import SegmentTask, normalise
from laworder.segmentation.together.packed import Packed
from laworder.segmentation.together.rules import RULES, SCALARS
from laworder.segmentation.together.stack import Stack

WARM_UP = 3
"""Updates without effect before a graph is captured, in which libraries choose their kernels."""


@dataclass(frozen=True)
class Inputs:
    """What one update needs: which pairs of the set, how each is augmented, and a row of `SCALARS` for each member."""

    rows: Int64[Tensor, "s b"]
    draws: Float[Tensor, "s b 11"]
    scalars: Float[Tensor, "s k"]


class Losses(nn.Module):
    """The terms of a run's loss, as a module, so that the weights of every member can be put into it."""

    def __init__(self, task: SegmentTask) -> None:
        super().__init__()
        self.model, self._task = task.model, [task]

    def forward(self, images: Tensor, masks: Tensor) -> Float[Tensor, " p"]:
        return torch.stack(list(self._task[0].parts(images, masks).values()))


class Update:
    """Calling it makes one update of the stack and gives, for each member, the loss, its terms and the gradient's norm.

    A member whose numbers are not finite is left as it was, then and in every later update: `healthy` says so.
    """

    def __init__(self, stack: Stack, images: UInt8[Tensor, "n c h w"], masks: UInt8[Tensor, "n 1 h w"]) -> None:
        self.stack, self.images, self.masks = stack, images, masks
        self.task, self.config = stack.tasks[0], stack.tasks[0].config
        self.losses = Losses(self.task)
        self.rule = RULES[self.config.optimiser.name]
        self.healthy = torch.ones(len(stack.tasks), dtype=torch.bool, device=self.task.device)
        self.prepare: Callable[..., Any] = self._prepare
        self.forward: Callable[..., Any] = self._forward
        self.move: Callable[..., Any] = self._move
        if self.config.compile:
            self.prepare, self.forward = torch.compile(self._prepare), torch.compile(self._forward)
            self.move = torch.compile(self._move)
        self._graph: Any = None
        self._given: tuple[Tensor, ...] = ()
        self._report: Tensor | None = None

    def __call__(self, inputs: Inputs) -> Float[Tensor, "s r"]:
        x, y = self.prepare(inputs.rows, inputs.draws)
        if self.task.device.type != "cuda":
            return self._update(x, y, inputs.scalars)
        given = (x, y, inputs.scalars)
        if self._report is None:
            self._capture(given)
        for own, new in zip(self._given, given, strict=True):
            own.copy_(new)
        self._graph.replay()
        assert self._report is not None
        return self._report

    def _prepare(self, rows: Tensor, draws: Tensor) -> tuple[Float[Tensor, "s b c h w"], UInt8[Tensor, "s b 1 h w"]]:
        """The batches, augmented and normalised: outside of the graph, since it makes tensors from Python's numbers."""
        chosen, flat, augment = rows.flatten(), draws.flatten(0, 1), self.task.augment
        drawn = Draw(flat[:, :6].unflatten(1, (2, 3)), *flat[:, 6:].unbind(1))
        images, masks = self.images[chosen].float() / 255, self.masks[chosen]
        x, y = apply(images, masks, drawn, geometric=augment.geometric, photometric=augment.photometric)
        return normalise(x).unflatten(0, rows.shape), y.unflatten(0, rows.shape)

    def _update(self, x: Tensor, y: Tensor, scalars: Tensor) -> Float[Tensor, "s r"]:
        stack = self.stack
        theta = stack.theta.flat.detach().requires_grad_()
        with _quiet():
            terms, floats, counts = self.forward(theta, x, y)
            total = terms.sum(1)
            (gradient,) = torch.autograd.grad(total.sum(), theta)
        with torch.no_grad():
            norm = stack.theta.norms(gradient)
            self.move(gradient, norm, total.detach(), floats, counts, scalars)
        return torch.cat([total[:, None], terms, norm[:, None]], 1).detach()

    def _forward(self, theta: Tensor, x: Tensor, y: Tensor) -> tuple[Float[Tensor, "s p"], Tensor, Tensor]:
        """The terms of every member's loss, and the buffers after the pass, packed."""
        stack = self.stack

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            inside = {f"model.{name}": value for name, value in {**parameters, **buffers}.items()}
            return functional_call(self.losses, inside, (x, y))

        # Copies, one by one: norms write into them, and a compiler follows that far more easily than writes into views.
        floats = {name: view.clone() for name, view in stack.floats.views().items()}
        counts = {name: view.clone() for name, view in stack.counts.views().items()}
        terms = vmap(one)(stack.theta.views(theta), {**floats, **counts}, x, y)
        return terms, stack.floats.join(floats), stack.counts.join(counts)

    def _move(
        self, g: Tensor, norm: Tensor, total: Tensor, floats: Tensor, counts: Tensor, scalars: Float[Tensor, "s k"]
    ) -> None:
        """Clip, step and average, in place, for the members that make this update."""
        stack, settings = self.stack, self.config.optimiser
        k = dict(zip(SCALARS, scalars.unbind(1), strict=True))
        wanted = k["active"] > 0
        self.healthy.logical_and_(~wanted | (total.isfinite() & norm.isfinite()))
        moving = wanted & self.healthy
        if settings.clip is not None:
            g = g * stack.theta.spread((settings.clip / (norm + 1e-6)).clamp(max=1.0))
        spread = {name: stack.theta.spread(value) for name, value in k.items()}
        theta, slots = self.rule.update(stack.theta.flat, g, stack.slots, spread, settings.weight_decay)
        here = stack.theta.spread(moving) & stack.used
        _keep(stack.theta.flat, theta, here)
        for name, value in slots.items():
            _keep(stack.slots[name], value, here)
        _keep(stack.floats.flat, floats, stack.floats.spread(moving))
        _keep(stack.counts.flat, counts, stack.counts.spread(moving))
        if stack.average is not None:
            self._average(moving)

    def _average(self, moving: Tensor) -> None:
        """a ← x at the first update, then a ← da + (1 − d)x, as torch's `AveragedModel` does."""
        stack, d = self.stack, self.config.optimiser.ema
        average = stack.average
        assert average is not None
        first = average.updates == 0

        def mean(of: Packed, kept: Tensor) -> None:
            if of.flat.is_floating_point():
                now = torch.lerp(kept, of.flat, 1 - d)
            else:
                now = (kept * d + of.flat * (1 - d)).to(kept.dtype)
            _keep(kept, torch.where(of.spread(first), of.flat, now), of.spread(moving))

        mean(stack.theta, average.theta)
        mean(stack.floats, average.floats)
        mean(stack.counts, average.counts)
        average.updates.add_(moving.float())

    def _capture(self, given: tuple[Tensor, Tensor, Tensor]) -> None:
        """The update as a graph over inputs of its own. Warm-ups run with nobody active, which changes nothing."""
        x, y, scalars = (tensor.clone() for tensor in given)
        scalars[:, SCALARS.index("active")] = 0
        self._given = (x, y, scalars)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._update(x, y, scalars)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._report = self._update(x, y, scalars)


def _keep(old: Tensor, new: Tensor, where: Tensor) -> None:
    old.copy_(torch.where(where, new, old))


@contextmanager
def _quiet() -> Any:
    """vmap says that it loops over members for the CPU's attention; that is what we want there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield
