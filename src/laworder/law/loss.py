"""What every objective returns."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Loss(NamedTuple):
    """A loss with its parts. Call `loss.total.backward()`; log the rest.

    A named tuple of tensors, so that it crosses `torch.compile` and `DistributedDataParallel` unharmed.
    """

    total: Float[Tensor, ""]
    """What to differentiate: the weighted sum of the parts."""
    parts: dict[str, Float[Tensor, ""]]
    """The terms before their coefficients, still attached to the graph: `denoise`, and `dice` or others."""
    weight_map: Float[Tensor, "b 1 *size"]
    """w as it multiplied the squared error, detached, in float32 (float64 for float64 input)."""
    stats: dict[str, Float[Tensor, ""]]
    """Diagnostics, detached 0-d tensors (`laworder.law.diagnostics` says what each means)."""
    delta: Float[Tensor, "b 1 *size"] | None = None
    """LAW's δ map, detached; None where the objective has none."""
