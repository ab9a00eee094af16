"""Does an exported file say what the model says? Run both on the same images, of three sizes, and measure."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from torch.nn import functional as F

from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.segmentation.export.runtimes import Output, Runtime
from laworder.segmentation.predictor import classes_of

LARGEST_DIFFERENCE = 1e-4
"""Of any probability, in float32."""
LEAST_AGREEMENT = 0.9999
"""Share of pixels that get the same class."""
LARGEST_DROP = 0.005
"""Of Dice by eight-bit weights and activations: half a point of a hundred."""


@dataclass(frozen=True)
class Agreement:
    """A file against its model on one batch of images."""

    batch: int
    height: int
    width: int
    largest_difference: float
    mask_agreement: float

    @property
    def holds(self) -> bool:
        return self.largest_difference <= LARGEST_DIFFERENCE and self.mask_agreement >= LEAST_AGREEMENT

    def words(self) -> str:
        return (
            f"{self.batch} × {self.height} × {self.width}: probabilities differ by at most "
            f"{self.largest_difference:.1e}, masks agree on {100 * self.mask_agreement:.4g} % of pixels"
        )


def sizes(side: int) -> list[tuple[int, int, int]]:
    """The training size; an odd, non-square one; a wide one in a batch."""
    return [(1, side, side), (1, side + 5, side // 2 + 38), (3, side // 2 + 33, side)]


def pictures(batch: int, height: int, width: int, channels: int) -> UInt8[np.ndarray, "b h w c"]:
    """Drawn images, as a user would hand them over."""
    source = PhantomSource(batch, size=max(height, width))
    colour = np.stack([source.read(k).image[:height, :width] for k in range(batch)])
    return np.ascontiguousarray(
        np.resize(np.moveaxis(colour, -1, 0), (channels, batch, height, width)).transpose(1, 2, 3, 0)
    )


@torch.inference_mode()
def expected(
    model: Segmenter,
    image: UInt8[np.ndarray, "b h w c"],
    *,
    side: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Output:
    """What the PyTorch model itself says, by its own forward pass and torch's own resize.

    In float64 by default: in float32, PyTorch's own rounding (in group norms above all) can exceed what is allowed.
    """
    model = copy.deepcopy(model).to(dtype)
    x = torch.from_numpy(image).permute(0, 3, 1, 2).to(dtype) / 255
    if side is not None:
        x = F.interpolate(x, (side, side), mode="bilinear", antialias=True)
    p = model.probabilities(model.preprocessing.normalise(x))
    if side is not None:
        p = F.interpolate(p, image.shape[1:3], mode="bilinear", antialias=True)
    return Output(classes_of(p, model.preprocessing.threshold).numpy(), p.numpy())


def compared(found: Output, truth: Output) -> Agreement:
    """Two outputs on the same images."""
    if found.mask.shape != truth.mask.shape or found.probability.shape != truth.probability.shape:
        raise UserError(
            f"the exported file gives a mask of {found.mask.shape} and probabilities of {found.probability.shape}, the "
            f"model {truth.mask.shape} and {truth.probability.shape}; nothing was written"
        )
    difference = np.abs(found.probability - truth.probability).max()
    batch, height, width = truth.mask.shape
    return Agreement(batch, height, width, float(difference), float((found.mask == truth.mask).mean()))


def agreements(runtime: Runtime, model: Segmenter, *, side: int | None) -> list[Agreement]:
    """One comparison a size."""
    found: list[Agreement] = []
    for shape in sizes(model.preprocessing.size):
        image = pictures(*shape, model.in_channels)
        found.append(compared(runtime(image), expected(model, image, side=side)))
    return found


def insist(found: list[Agreement]) -> None:
    """UserError where a float32 file does not say what its model says."""
    for agreement in found:
        if not agreement.holds:
            raise UserError(
                f"the exported file disagrees with the model, at {agreement.words()} (allowed: "
                f"{LARGEST_DIFFERENCE:.0e} and {100 * LEAST_AGREEMENT} %); nothing was written"
            )
