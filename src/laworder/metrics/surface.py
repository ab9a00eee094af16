r"""How far apart two outlines are: the 95th percentile of the Hausdorff distance, boundary F1 and surface Dice.

The outline ∂M of a mask is the set of its pixels that have a neighbour along an axis outside M; outside the picture
counts as outside M. With d(a, B) the distance from a point to the nearest one of a set, in pixels or, with `spacing`,
in its unit:

- HD95 = max(Q₉₅{d(a, ∂Y) : a ∈ ∂Ŷ}, Q₉₅{d(b, ∂Ŷ) : b ∈ ∂Y}), Q₉₅ the 95th percentile with linear interpolation;
- boundary precision P is the share of ∂Ŷ within `tolerance` of ∂Y, recall R the share of ∂Y within it of ∂Ŷ,
  boundary F1 = 2PR / (P + R);
- surface Dice (NSD) pools the two: (|∂Ŷ within| + |∂Y within|) / (|∂Ŷ| + |∂Y|).

Masks without outline. HD95 has no value where a mask is empty: NaN where both are, infinity where exactly one is;
average it over the images where it is finite and say how many were left out. Boundary F1 and surface Dice follow the
house rule of Dice: both empty 1, exactly one empty 0. (MONAI 1.6 gives NaN for HD95 in all three cases and for surface
Dice where both are empty; every other number is the same.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laworder.errors import UserError

TOLERANCE = 2.0
"""How far an outline may be off in boundary F1 and surface Dice, in pixels where no spacing is given."""


@dataclass(frozen=True)
class OutlineDistances:
    """From each outline point of one mask to the nearest of the other, both ways. Either is empty with its mask."""

    predicted: Float[Tensor, " p"]
    true: Float[Tensor, " t"]

    def percentile(self, share: float = 0.95) -> float:
        """The larger of the two directed percentiles: HD95 at 0.95, the Hausdorff distance at 1."""
        sizes = self.predicted.numel(), self.true.numel()
        if 0 in sizes:
            return math.nan if sizes == (0, 0) else math.inf
        return max(_quantile(d, share) for d in (self.predicted, self.true))

    def precision(self, tolerance: float = TOLERANCE) -> float:
        """Share of the predicted outline that lies within `tolerance` of the true one."""
        return _share_within(self.predicted, self.true, tolerance)

    def recall(self, tolerance: float = TOLERANCE) -> float:
        """Share of the true outline that lies within `tolerance` of the predicted one."""
        return _share_within(self.true, self.predicted, tolerance)

    def f1(self, tolerance: float = TOLERANCE) -> float:
        """2PR / (P + R) of boundary precision and recall."""
        p, r = self.precision(tolerance), self.recall(tolerance)
        return 2 * p * r / (p + r) if p + r > 0 else 0.0

    def surface_dice(self, tolerance: float = TOLERANCE) -> float:
        """Share of both outlines together that lies within `tolerance` of the other."""
        both = torch.cat([self.predicted, self.true])
        return 1.0 if both.numel() == 0 else float((both <= tolerance).double().mean())


def _share_within(own: Tensor, other: Tensor, tolerance: float) -> float:
    if own.numel() == 0:
        return 1.0 if other.numel() == 0 else 0.0
    return float((own <= tolerance).double().mean())


def _quantile(values: Tensor, share: float) -> float:
    """Linear interpolation between order statistics; `torch.quantile` refuses more than 16 million values."""
    ordered = values.sort().values
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def outline(mask: Bool[Tensor, "*size"]) -> Bool[Tensor, "*size"]:
    """Pixels of a 2-D or 3-D mask that touch its outside along an axis."""
    inner = mask.clone()
    for axis, side in enumerate(mask.shape):
        for kept, seen, edge in ((slice(1, None), slice(None, -1), 0), (slice(None, -1), slice(1, None), side - 1)):
            index = [slice(None)] * mask.ndim
            index[axis] = kept
            neighbour = [slice(None)] * mask.ndim
            neighbour[axis] = seen
            inner[tuple(index)] &= mask[tuple(neighbour)]
            inner.select(axis, edge).fill_(False)
    return mask & ~inner


def distances_to(points: Bool[Tensor, "*size"], spacing: Sequence[float]) -> Float[Tensor, "*size"]:
    """Exact Euclidean distance from every pixel to the nearest point; infinite where there is none.

    Squared distances separate: D²(x, y) = min over y' of (y − y')²s² + [min over x' of the same along x], one axis
    after the other, each in as many whole-array steps as the axis is long.
    """
    squared = torch.where(points, 0.0, math.inf).double()
    for axis, step in enumerate(spacing):
        nearest = squared.clone()
        for shift in range(1, squared.shape[axis]):
            length = squared.shape[axis] - shift
            cost = (shift * step) ** 2
            low, high = nearest.narrow(axis, 0, length), nearest.narrow(axis, shift, length)
            torch.minimum(low, squared.narrow(axis, shift, length) + cost, out=low)
            torch.minimum(high, squared.narrow(axis, 0, length) + cost, out=high)
        squared = nearest
    return squared.sqrt()


def outline_distances(
    predicted: Bool[Tensor, "*size"], true: Bool[Tensor, "*size"], *, spacing: Sequence[float] | None = None
) -> OutlineDistances:
    """Both ways between the outlines of two masks of one image, 2-D or 3-D; `spacing` is a pixel's size by axis.

    Only the box around both masks is looked at, which changes nothing: outlines lie inside it.
    """
    if predicted.shape != true.shape:
        raise UserError(f"prediction {tuple(predicted.shape)} and truth {tuple(true.shape)} differ in shape")
    if predicted.dtype != torch.bool or true.dtype != torch.bool:
        raise UserError("masks must be boolean: threshold them first (`probability > 0.5`, `mask > 0`)")
    steps = [1.0] * true.ndim if spacing is None else [float(s) for s in spacing]
    if len(steps) != true.ndim or not all(math.isfinite(s) and s > 0 for s in steps):
        raise UserError(f"spacing must be {true.ndim} positive numbers, one an axis, not {spacing}")
    where = (predicted | true).nonzero()
    if len(where) == 0:
        return OutlineDistances(torch.empty(0), torch.empty(0))
    low, high = where.amin(0), where.amax(0) + 1
    box = tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
    p, t = outline(predicted[box]), outline(true[box])
    return OutlineDistances(distances_to(t, steps)[p], distances_to(p, steps)[t])


def hd95(
    predicted: Bool[Tensor, "*size"], true: Bool[Tensor, "*size"], *, spacing: Sequence[float] | None = None
) -> float:
    """95th percentile of the Hausdorff distance of one image."""
    return outline_distances(predicted, true, spacing=spacing).percentile(0.95)


def boundary_f1(
    predicted: Bool[Tensor, "*size"],
    true: Bool[Tensor, "*size"],
    *,
    tolerance: float = TOLERANCE,
    spacing: Sequence[float] | None = None,
) -> float:
    """F1 of the outlines of one image, within a tolerance in pixels or, with `spacing`, in its unit."""
    return outline_distances(predicted, true, spacing=spacing).f1(tolerance)


def surface_dice(
    predicted: Bool[Tensor, "*size"],
    true: Bool[Tensor, "*size"],
    *,
    tolerance: float = TOLERANCE,
    spacing: Sequence[float] | None = None,
) -> float:
    """Normalised surface Dice of one image, within a tolerance."""
    return outline_distances(predicted, true, spacing=spacing).surface_dice(tolerance)
