"""Coordinates, smooth noise, soft shapes and lesions of exact area: what every phantom painter needs.

Coordinates run from -1 to 1 over the picture whatever its size, and noise fields are drawn on a grid of their own and
then interpolated, so that one (seed, index) gives the same scene at every size. Interpolation is a sum of four rows,
not a matrix product: the number of BLAS threads must not move a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, UInt8

Field = Float[np.ndarray, "size size"]
Window = Float[np.ndarray, "rows columns"]  # a part of a field


@lru_cache(maxsize=8)
def grid(size: int) -> tuple[Field, Field]:
    """x to the right and y downwards, in [-1, 1] at pixel centres; shared, hence read-only."""
    line = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    x, y = np.meshgrid(line, line)
    x.setflags(write=False)
    y.setflags(write=False)
    return x, y


@lru_cache(maxsize=64)
def _taps(size: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of `size` pixels: the first of four knots, and their Catmull-Rom weights."""
    at = (np.arange(size, dtype=np.float64) + 0.5) * (cells / size) + 1
    first = np.floor(at).astype(np.intp)
    t = (at - first)[:, None]
    weights = np.hstack([((2 - t) * t - 1) * t, (3 * t - 5) * t * t + 2, ((4 - 3 * t) * t + 1) * t, (t - 1) * t * t])
    return first - 1, (weights * 0.5).astype(np.float32)


def smooth_noise(rng: np.random.Generator, size: int, cells: int) -> Field:
    """Noise with unit variance at its knots and `cells` knots across the picture, bicubic in between."""
    knots = rng.standard_normal((cells + 4, cells + 4), dtype=np.float32)
    first, weights = _taps(size, cells)
    across = weights[:, 0] * knots[:, first]
    for k in range(1, 4):
        across += weights[:, k] * knots[:, first + k]
    out = weights[:, 0, None] * across[first]
    for k in range(1, 4):
        out += weights[:, k, None] * across[first + k]
    return out


def pixel_noise(rng: np.random.Generator, size: int) -> Field:
    """Independent noise of unit variance in every pixel: the one thing that does depend on the size.

    Each value is the sum of four uniform bytes, which is near enough to a Gaussian and several times faster.
    """
    octets = np.frombuffer(rng.bytes(4 * size * size), dtype=np.uint8).reshape(4, size, size)
    total = octets.sum(axis=0, dtype=np.uint16).astype(np.float32)
    return (total - (4 * 127.5)) * (1 / math.sqrt(4 * (256**2 - 1) / 12))


def smoothstep(value: Field, low: float, high: float) -> Field:
    """0 below `low`, 1 above `high`, 3t² − 2t³ between."""
    t = np.clip((value - low) * (1 / (high - low)), 0, 1)
    return t * t * (3 - 2 * t)


def ellipse(x: Window, y: Window, centre: Sequence[float], axes: Sequence[float], angle: float = 0.0) -> Window:
    """Normalised radius of an ellipse: 0 in its centre, 1 on its rim."""
    cos, sin = math.cos(angle), math.sin(angle)
    dx, dy = x - centre[0], y - centre[1]
    u = (dx * cos + dy * sin) * (1 / axes[0])
    v = (dy * cos - dx * sin) * (1 / axes[1])
    return np.sqrt(u * u + v * v)


def cover(radius: Window, width: float) -> Window:
    """How much of a pixel lies inside radius 1, with a soft rim `width` wide (in radii)."""
    return np.clip((1 - radius) * (1 / width) + 0.5, 0, 1)


def polar(centre: Sequence[float], axes: Sequence[float], reach: float, angle: float) -> tuple[float, float]:
    """The point at `reach` radii of an ellipse, in direction `angle`."""
    return centre[0] + reach * axes[0] * math.cos(angle), centre[1] + reach * axes[1] * math.sin(angle)


def blend(picture: np.ndarray, value: float | np.ndarray, amount: np.ndarray) -> None:
    """Paint `value` over `picture` in place: picture ← picture + amount·(value − picture)."""
    picture += amount * (value - picture)


@dataclass
class Brush:
    """Paints soft ellipses, each only inside its bounding box: dozens of organs cost one pass over the picture.

    warp_x, warp_y shift the coordinates, so that ellipses become organs; `detail` is the width of a rim in coordinates.
    """

    picture: Field
    warp_x: Field
    warp_y: Field
    detail: float

    def ellipse(
        self, centre: Sequence[float], axes: Sequence[float], value: float, *, angle: float = 0.0, opacity: float = 1.0
    ) -> None:
        """One soft ellipse; organs off the picture paint nothing."""
        size = self.picture.shape[0]
        reach = max(axes) + 0.12
        left, right = (int((c * 0.5 + 0.5) * size) for c in (centre[0] - reach, centre[0] + reach))
        top, bottom = (int((c * 0.5 + 0.5) * size) for c in (centre[1] - reach, centre[1] + reach))
        window = np.s_[max(top, 0) : max(bottom + 2, 0), max(left, 0) : max(right + 2, 0)]
        radius = ellipse(self.warp_x[window], self.warp_y[window], centre, axes, angle)
        amount = cover(radius, self.detail / min(axes)) * opacity
        blend(self.picture[window], value, amount)


@dataclass(frozen=True)
class Lesion:
    """A lesion's outline as a scalar field, and the mask that an annotator would draw.

    field: 0 in the centre, 1 on the true boundary
    mask:  exactly the asked number of pixels, along a contour that strays a little from the true boundary
    radius: radius of the disc of equal area, in coordinates
    centre: in coordinates
    """

    field: Field
    mask: UInt8[np.ndarray, "size size"]
    radius: float
    centre: tuple[float, float]

    def opacity(self, softness: Field | float) -> Field:
        """1 inside, 0 outside, over a rim `softness` wide (in coordinates; may vary from place to place)."""
        t = (1 - self.field) * (self.radius / softness)
        return 1 / (1 + np.exp(np.clip(-4 * t, -30, 30)))


@dataclass(frozen=True)
class LesionPlan:
    """What is decided about a lesion before it is drawn: all that one patient's lesions share."""

    centre: tuple[float, float]
    elongation: float
    angle: float
    waves: tuple[float, ...]
    phases: tuple[float, ...]

    @classmethod
    def draw(cls, rng: np.random.Generator, centre: tuple[float, float], lobes: float = 1.0) -> LesionPlan:
        """A shape at random: an ellipse with up to four waves around its rim."""
        waves = rng.normal(0, 1, 4) * (0.07, 0.06, 0.04, 0.03) * lobes
        return cls(
            centre=centre,
            elongation=float(rng.uniform(1.0, 1.6)),
            angle=float(rng.uniform(0, np.pi)),
            waves=tuple(waves.tolist()),
            phases=tuple(rng.uniform(0, 2 * np.pi, 4).tolist()),
        )

    def at(self, rng: np.random.Generator, size: int, fraction: float, room: Bool[np.ndarray, "size size"]) -> Lesion:
        """This lesion with `fraction` of the picture's pixels (at least 1), inside `room` as far as it can be."""
        x, y = grid(size)
        stretch = math.sqrt(self.elongation)
        radius = math.sqrt(fraction * 4 / math.pi)
        shape = ellipse(x, y, self.centre, (stretch, 1 / stretch), self.angle)
        theta = np.arctan2(y - self.centre[1], x - self.centre[0])
        rim = np.ones_like(shape)
        for k, (wave, phase) in enumerate(zip(self.waves, self.phases, strict=True), start=2):
            rim += wave * np.cos(k * theta + phase)
        shape = shape / np.maximum(rim, 0.4)
        # Where the lesion meets the edge of its room it grows elsewhere instead, so that its area stays as asked.
        shape = np.where(room, shape, shape + 4)
        wanted = max(1, round(fraction * size * size))
        limit = np.partition(shape, wanted - 1, axis=None)[wanted - 1]
        true = shape / max(float(limit), 1e-6)
        strayed = true + min(0.05, 0.012 / radius) * smooth_noise(rng, size, 9)
        flat = np.argpartition(strayed, wanted - 1, axis=None)[:wanted]
        mask = np.zeros(size * size, dtype=np.uint8)
        mask[flat] = 1
        return Lesion(true, mask.reshape(size, size), radius, self.centre)
