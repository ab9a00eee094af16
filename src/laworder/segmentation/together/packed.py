"""Named tensors of S members in one vector, so that an optimiser's step is a handful of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor


class Packed:
    """Block after block, each (S, *shape): every view is contiguous, which vmap turns into channels without a copy."""

    def __init__(self, members: Sequence[Mapping[str, Tensor]], *, device: torch.device) -> None:
        self.count = len(members)
        self.shapes = {name: tuple(value.shape) for name, value in members[0].items()}
        stacked = [torch.stack([m[name].detach() for m in members]).flatten() for name in self.shapes]
        self.sizes = [len(block) for block in stacked]
        self.flat: Shaped[Tensor, " n"] = torch.cat(stacked).to(device) if stacked else torch.zeros(0, device=device)
        owner = [torch.arange(self.count).repeat_interleave(size // self.count) for size in self.sizes]
        self.owner: Int64[Tensor, " n"] = (torch.cat(owner) if owner else torch.zeros(0, dtype=torch.long)).to(device)
        # Where member s's numbers lie: row s of flat[of].
        self.of: Int64[Tensor, "s p"] = torch.argsort(self.owner, stable=True).view(self.count, -1)

    def views(self, flat: Shaped[Tensor, " n"] | None = None) -> dict[str, Shaped[Tensor, "s ..."]]:
        """The named tensors, members first, of this vector or of one that is laid out like it."""
        blocks = (self.flat if flat is None else flat).split(self.sizes)
        return {
            name: block.view(self.count, *shape)
            for (name, shape), block in zip(self.shapes.items(), blocks, strict=True)
        }

    def join(self, views: Mapping[str, Shaped[Tensor, "s ..."]]) -> Shaped[Tensor, " n"]:
        """The vector of such views."""
        return torch.cat([views[name].reshape(-1) for name in self.shapes]) if self.shapes else self.flat

    def spread(self, values: Shaped[Tensor, " s"]) -> Shaped[Tensor, " n"]:
        """A number of each member at all of its places."""
        return values[self.owner]

    def norms(self, flat: Float[Tensor, " n"]) -> Float[Tensor, " s"]:
        """The Euclidean norm of each member's numbers."""
        return torch.linalg.vector_norm(flat[self.of], dim=1)

    def member(self, index: int, flat: Shaped[Tensor, " n"] | None = None) -> dict[str, Tensor]:
        """One member's tensors, copied."""
        return {name: view[index].clone() for name, view in self.views(flat).items()}

    @torch.no_grad()
    def put(self, index: int, values: Mapping[str, Tensor], flat: Shaped[Tensor, " n"] | None = None) -> None:
        """Write one member's tensors."""
        for name, view in self.views(flat).items():
            view[index].copy_(values[name])
