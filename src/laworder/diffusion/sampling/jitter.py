"""Masks that no patient had, but one might have: a real lesion, moved, turned, resized and bent within bounds.

What is drawn for a mask is a function of (seed, its name, its number). A made mask

- lies wholly inside the field (`field.py`), and about as far from its border as the real one: what a draw puts outside
  is cut off, and a draw that loses more than a twentieth of its lesion is thrown away;
- has an area between two quantiles of the real ones;
- has no more parts than the real lesion has: one of one part stays in one piece;
- keeps every class that the real mask has, in the same arrangement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

from laworder.config import option
from laworder.data.audit.components import label
from laworder.data.audit.masks import SPECK
from laworder.data.sources.painters.canvas import smooth_noise
from laworder.diffusion.sampling.field import grown, largest, shrunk
from laworder.errors import UserError
from laworder.runs.randomness import key

_TRIES = 48
_LOST = 0.05  # share of a draw that the field may cut off
_KNOTS = 3  # of the bending field, across a lesion's bounding square
_DEPTHS = (12, 16, 24, 32)  # parts of the side: how deep in its field a real lesion may be found to lie


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """How far a made mask may be from the real one that it comes from."""

    shift: float = option(0.1, "largest shift of the lesion", unit="share of the side", minimum=0, maximum=1)
    size: float = option(0.5, "largest change of its area; 0.5 is from 1/1.5 to 1.5 times", minimum=0, maximum=9)
    turn: float = option(30.0, "largest turn either way", unit="degrees", minimum=0, maximum=180)
    stretch: float = option(0.2, "largest stretch along one axis; the other shrinks by it", minimum=0, maximum=1)
    bend: float = option(0.08, "how far its outline is bent", unit="share of its radius", minimum=0, maximum=0.5)
    mirror: bool = option(True, "mirror every other lesion in its place")
    margin: float = option(0.02, "band inside the field's border that stays free", unit="share of the side", minimum=0)
    smallest: float = option(0.05, "no smaller than this quantile of the real lesions", minimum=0, maximum=1)
    largest: float = option(0.95, "no larger than this quantile of the real lesions", minimum=0, maximum=1)

    def areas(self, real: list[int]) -> tuple[int, int]:
        """Least and largest area, in pixels, from those of the real masks; empty ones do not count."""
        if self.smallest > self.largest:
            raise UserError(f"jitter: smallest ({self.smallest}) lies above largest ({self.largest})")
        lesions = [area for area in real if area > 0]
        if not lesions:
            raise UserError("augment: every mask is empty; there is no lesion to vary")
        low, high = np.quantile(lesions, (self.smallest, self.largest))
        least = max(1, math.ceil(low))
        return least, max(least, math.floor(high))


@dataclass(frozen=True)
class _Lesion:
    """What has to be known of a real mask: its centre, area, classes, parts, and how far it reaches from its centre."""

    mask: UInt8[np.ndarray, "h w"]
    centre: tuple[float, float]
    area: int
    classes: tuple[int, ...]
    parts: int
    reach: float

    @classmethod
    def of(cls, mask: UInt8[np.ndarray, "h w"]) -> _Lesion:
        rows, columns = np.nonzero(mask)
        y, x = float(rows.mean()), float(columns.mean())
        numbered, count = label(mask > 0)
        sizes = np.bincount(numbered.ravel(), minlength=count + 1)[1:]
        return cls(
            mask=mask,
            centre=(y, x),
            area=len(rows),
            classes=tuple(int(v) for v in np.unique(mask[mask > 0])),
            parts=max(1, int((sizes >= SPECK).sum())),
            reach=float(np.hypot(rows - y, columns - x).max()) + 1,
        )


def make_mask(
    mask: UInt8[np.ndarray, "h w"],
    field: Bool[np.ndarray, "h w"],
    *,
    areas: tuple[int, int],
    jitter: Jitter,
    seed: int,
    name: str,
    number: int,
) -> UInt8[np.ndarray, "h w"]:
    """Variation `number` of a real mask. An empty mask stays empty.

    field: where a lesion may lie; the real lesion, or most of it, lies in it
    areas: least and largest area of the result, in pixels
    """
    if not mask.any():
        return mask.copy()
    lesion, best = _Lesion.of(mask), (math.inf, mask)
    allowed = _room(lesion, field, round(jitter.margin * min(mask.shape)))
    for attempt in range(_TRIES):
        rng = np.random.default_rng((key(seed, step=number, stream=f"mask/{name}"), attempt))
        # Where draws keep failing, later ones stay nearer to the real mask.
        strength = 1 - attempt / _TRIES
        made, lost = _draw(lesion, allowed, areas, jitter, strength, rng)
        fault = _fault(made, lost, lesion, areas)
        if fault == 0:
            return made
        if fault < best[0]:
            best = (fault, made)
    return best[1]


def _room(lesion: _Lesion, field: Bool[np.ndarray, "h w"], margin: int) -> Bool[np.ndarray, "h w"]:
    """Where in the field a draw may put lesion: beyond the margin, and no nearer to the border than the real one lies.

    That keeps a tumour of the brain out of skull and scalp, which belong to the field too.
    """
    for part in _DEPTHS:
        deep = _inner(field, min(field.shape) // part)
        kept = np.count_nonzero(deep & (lesion.mask > 0)) >= (1 - _LOST) * lesion.area
        if kept and np.count_nonzero(deep) >= 2 * lesion.area:  # else there would be no room to move
            return deep
    room = _inner(field, margin)
    return room if (room & (lesion.mask > 0)).any() else field


def _inner(field: Bool[np.ndarray, "h w"], reach: int) -> Bool[np.ndarray, "h w"]:
    """The field without a band along its border; the picture's edge is a border too."""
    return shrunk(np.pad(field, 1), reach)[1:-1, 1:-1]


def _fault(made: UInt8[np.ndarray, "h w"], lost: float, lesion: _Lesion, areas: tuple[int, int]) -> float:
    """0 for a draw that keeps all promises; an empty one, or one that lost a class, is the worst."""
    area = int(np.count_nonzero(made))
    if area == 0:
        return math.inf
    gone = len(lesion.classes) - len(np.unique(made[made > 0]))
    low, high = areas
    off = max(0.0, math.log(low / area), math.log(area / high))
    return 100 * gone + 10 * off + (lost if lost > _LOST else 0.0)


def _draw(
    lesion: _Lesion,
    allowed: Bool[np.ndarray, "h w"],
    areas: tuple[int, int],
    jitter: Jitter,
    strength: float,
    rng: np.random.Generator,
) -> tuple[UInt8[np.ndarray, "h w"], float]:
    """One draw, cut to the field, and the share that the cut took."""
    spread = 2 * rng.random(4) - 1
    wanted = lesion.area * math.exp(strength * spread[0] * math.log1p(jitter.size))
    zoom = math.sqrt(min(max(wanted, areas[0]), areas[1]) / lesion.area)
    turn = math.radians(jitter.turn) * strength * spread[1]
    stretch = math.exp(strength * spread[2] * math.log1p(jitter.stretch))
    mirror = -1.0 if jitter.mirror and rng.random() < 0.5 and strength > 0.25 else 1.0
    # A lesion that grows where the field is narrow has to fit as it is: the shift alone is drawn among what is allowed.
    centre = _place(lesion, allowed, jitter.shift * strength * min(allowed.shape), rng)
    along = rng.random() * math.pi
    shape = _turned(along) @ np.diag([stretch, 1 / stretch]) @ _turned(-along) @ _turned(turn) @ np.diag([1, mirror])
    bent = jitter.bend * strength * math.sqrt(lesion.area / math.pi)
    moved = _warped(lesion, centre, zoom * shape, bent, rng)
    smooth = _smoothed(moved, lesion, int(rng.integers(0, 3)), zoom)
    before = np.count_nonzero(smooth)
    made = np.where(largest((smooth > 0) & allowed, lesion.parts), smooth, 0).astype(np.uint8)
    return made, 1 - np.count_nonzero(made) / before if before else 1.0


def _turned(angle: float) -> Float[np.ndarray, "2 2"]:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def _place(
    lesion: _Lesion, allowed: Bool[np.ndarray, "h w"], shift: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Where the centre goes: any allowed pixel within `shift` of where it is."""
    rows, columns = np.nonzero(allowed)
    near = np.hypot(rows - lesion.centre[0], columns - lesion.centre[1]) <= shift
    pick = rng.random()
    if not near.any():
        return lesion.centre
    index = int(pick * np.count_nonzero(near))
    return float(rows[near][index]), float(columns[near][index])


def _warped(
    lesion: _Lesion,
    centre: tuple[float, float],
    shape: Float[np.ndarray, "2 2"],
    bent: float,
    rng: np.random.Generator,
) -> UInt8[np.ndarray, "h w"]:
    """The mask under x ↦ shape · (x − old centre) + centre, bent by a smooth field of `bent` pixels in its own frame.

    Every pixel of the result looks up where it comes from; between pixels the classes are mixed and the likeliest
    wins, which keeps outlines smooth where a mask grows.
    """
    side = max(2, math.ceil(2 * lesion.reach) + 1)
    field = np.stack([smooth_noise(rng, side, _KNOTS) for _ in range(2)]) * bent
    result = np.zeros_like(lesion.mask)
    window = _window(lesion, centre, shape, float(np.abs(field).max()))
    rows, columns = np.mgrid[window]
    if rows.size == 0:
        return result
    inverse = np.linalg.inv(shape)
    dy, dx = rows - centre[0], columns - centre[1]
    y, x = inverse[0, 0] * dy + inverse[0, 1] * dx, inverse[1, 0] * dy + inverse[1, 1] * dx
    at_y = np.clip((y + lesion.reach).round(), 0, side - 1).astype(np.intp)
    at_x = np.clip((x + lesion.reach).round(), 0, side - 1).astype(np.intp)
    y, x = y + field[0][at_y, at_x] + lesion.centre[0], x + field[1][at_y, at_x] + lesion.centre[1]
    result[window] = _looked_up(lesion, y, x)
    return result


def _window(
    lesion: _Lesion, centre: tuple[float, float], shape: Float[np.ndarray, "2 2"], bent: float
) -> tuple[slice, slice]:
    """The part of the picture that the moved lesion can touch."""
    reach = float(np.linalg.norm(shape, 2)) * (lesion.reach + bent) + 2
    spans = [(max(0, math.floor(c - reach)), math.ceil(c + reach)) for c in centre]
    (top, bottom), (left, right) = spans
    height, width = lesion.mask.shape
    return slice(top, min(height, bottom)), slice(left, min(width, right))


def _looked_up(lesion: _Lesion, y: Float[np.ndarray, "h w"], x: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w"]:
    """The likeliest class at each place, bilinearly."""
    height, width = lesion.mask.shape
    padded = np.pad(lesion.mask, 1)
    y, x = np.clip(y + 1, 0, height + 0.999), np.clip(x + 1, 0, width + 0.999)
    top, left = np.floor(y).astype(np.intp), np.floor(x).astype(np.intp)
    fy, fx = y - top, x - left
    corners = (
        ((1 - fy) * (1 - fx), padded[top, left]),
        ((1 - fy) * fx, padded[top, left + 1]),
        (fy * (1 - fx), padded[top + 1, left]),
        (fy * fx, padded[top + 1, left + 1]),
    )
    names = np.array((0, *lesion.classes), dtype=np.uint8)
    shares = [np.sum([weight * (classes == name) for weight, classes in corners], axis=0) for name in names]
    return names[np.argmax(shares, axis=0)]


def _smoothed(moved: UInt8[np.ndarray, "h w"], lesion: _Lesion, kind: int, zoom: float) -> UInt8[np.ndarray, "h w"]:
    """Its outline as it is (0), without dents (1) or without spikes (2), by a twelfth of its radius."""
    reach = round(zoom * math.sqrt(lesion.area / math.pi) / 12)
    if kind == 0 or reach < 1:
        return moved
    inside = moved > 0
    if kind == 2:
        return np.where(grown(shrunk(inside, reach), reach), moved, 0).astype(np.uint8)
    filled = shrunk(grown(inside, reach), reach) & ~inside
    result = moved.copy()
    for name in lesion.classes:  # a dent takes the class that lies nearest
        near = filled & grown(moved == name, reach) & (result == 0)
        result[near] = name
    return result
