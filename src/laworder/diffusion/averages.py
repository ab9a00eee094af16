"""What every training of this room has in common: processes that share a batch, and averaged weights that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from laworder.diffusion.learners import Shelf
from laworder.diffusion.library import library
from laworder.runs import Task
from laworder.runs.distributed import Place, average_gradients
from laworder.runs.shards import is_shard, shard_like


class AveragedTask(Task):
    """Networks in training, of whose weights a running average is kept.

    weights:    what is kept, under the names that it has in its network
    learning:   these and whatever learns along
    decay:      of the average, min(decay, (1 + k) / (10 + k)) at update k; 0 keeps the weights as they are
    pair_names: of the pairs, in the order of their positions
    """

    def __init__(
        self,
        weights: Mapping[str, Parameter],
        optimiser: Optimizer,
        *,
        modules: Mapping[str, nn.Module] | None = None,
        learning: Iterable[Parameter] = (),
        decay: float,
        place: Place,
        device: torch.device,
        pair_names: Sequence[str],
    ) -> None:
        super().__init__(modules={"weights": Shelf(weights), **(modules or {})}, optimizers={"optimiser": optimiser})
        self.weights, self.place, self.device, self.pair_names = dict(weights), place, device, pair_names
        self.learning = list(dict.fromkeys([*weights.values(), *learning]))
        self.ema: Any = None
        if decay:
            average = library("diffusers.training_utils").EMAModel
            self.ema = average(self.weights.values(), decay=decay, foreach=True)

    def rows(self, count: int, micro: int) -> slice:
        """Where the `count` images that this process computes in part `micro` lie in the whole batch."""
        first = (micro * self.place.world + self.place.rank) * count
        return slice(first, first + count)

    def names(self, batch: Any) -> list[str]:
        return [self.pair_names[int(position)] for position in batch]

    def after_backward(self, step: int) -> None:  # noqa: ARG002
        # What is sharded has been averaged in the backward pass.
        average_gradients([p for p in self.learning if not is_shard(p)], self.place.world)

    def after_step(self, step: int) -> None:  # noqa: ARG002
        if self.ema is not None:
            self.ema.step(self.weights.values())

    def extra_state(self) -> dict[str, Any]:
        return {"ema": None if self.ema is None else self.ema.state_dict()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        if self.ema is None:
            return
        given, own = state["ema"], self.weights.values()
        cut = [shard_like(mean, weight) for mean, weight in zip(given["shadow_params"], own, strict=True)]
        self.ema.load_state_dict({**given, "shadow_params": cut})
        self.ema.to(self.device)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged weights in the networks while this lasts."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        """Weights and averages change places, one tensor at a time: no second copy of all is needed."""
        if self.ema is None:
            return
        for weight, mean in zip(self.weights.values(), self.ema.shadow_params, strict=True):
            kept = weight.detach().clone()
            weight.copy_(mean)
            mean.copy_(kept)


@torch.no_grad()
def put_kept(network: nn.Module, state: Mapping[str, Any]) -> None:
    """Put a checkpoint's kept weights, the averaged ones where there are any, into the network they were learnt in."""
    learnt: Mapping[str, Tensor] = state["modules"]["weights"]
    ema = state["extra"]["ema"]
    kept = learnt.values() if ema is None else ema["shadow_params"]
    for name, value in zip(learnt, kept, strict=True):
        network.get_parameter(name.replace("/", ".")).copy_(value)
