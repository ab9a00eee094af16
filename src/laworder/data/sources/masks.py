"""What a mask file means: 0/1, 0/255, soft edges, colours, class indices → classes 0, 1, 2…

Without being told, a mask is lesion or not:

- two levels, {0, v}: v is lesion, be it 1 or 255;
- a few flat colours: whatever is not black is lesion;
- many levels, as soft edges and JPEG leave them: lesion above 127;
- several levels that all lie below 128, such as {0, 1, 2}: refused, because those are class indices and halving them at
  127 would silently empty the mask: ask for `MaskRule(index=True)` or declare the colours;
- more than a sixth of the pixels between the levels: refused, because that is a picture and not a mask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, UInt8
from PIL import Image

from laworder.data.sources.images import flat, is_deep, shown
from laworder.errors import UserError

FEW_LEVELS = 16
MAX_CLASSES = 64
_COLOUR_REACH = 40  # how far JPEG may shift a declared colour, per channel


@dataclass(frozen=True)
class MaskRule:
    """How the values of a mask file become classes.

    index: pixel values (or palette indices) are class indices; otherwise lesion or not
    classes: with `index`, the number of classes including the background; higher values are refused
    colours: "#rrggbb" → class index, for masks with a colour for each class; black is the background unless declared
    """

    index: bool = False
    classes: int | None = None
    colours: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.index and self.colours:
            raise UserError("masks: say either index or colours, not both")
        if self.classes is not None and not 2 <= self.classes <= MAX_CLASSES:
            raise UserError(f"masks: classes must lie between 2 and {MAX_CLASSES}, not {self.classes}")
        for name, number in (self.colours or {}).items():
            if not re.fullmatch(r"#[0-9a-fA-F]{6}", name):
                raise UserError(f"masks: a colour is written '#rrggbb', not {name!r}")
            if not 0 <= number < MAX_CLASSES:
                raise UserError(f"masks: the class of {name} must lie between 0 and {MAX_CLASSES - 1}, not {number}")

    def read(self, path: Path, picture: Image.Image) -> UInt8[np.ndarray, "h w"]:
        """Classes per pixel; UserError with `path` where the values do not fit the rule."""
        if self.colours:
            return _by_colour(path, picture, self.colours)
        return _by_index(path, picture, self.classes) if self.index else _lesion_or_not(path, picture)


def _values(path: Path, picture: Image.Image) -> np.ndarray:
    """One number per pixel: gray as it is, the brightest channel of a colour."""
    if is_deep(picture):
        values = np.asarray(picture)
        if not np.isfinite(values).all():
            raise UserError(f"{shown(path)}: a mask with values that are not numbers")
        return values
    pixels = np.array(flat(picture), dtype=np.uint8)
    return pixels.max(axis=2) if pixels.ndim == 3 else pixels


def _lesion_or_not(path: Path, picture: Image.Image) -> UInt8[np.ndarray, "h w"]:
    values = _values(path, picture)
    levels = np.unique(values)
    if levels[0] < 0:
        raise UserError(f"{shown(path)}: a mask with negative values (down to {levels[0]})")
    if len(levels) == 1 or (len(levels) == 2 and levels[0] == 0):
        return (values > 0).astype(np.uint8)
    top = _top(levels)
    coloured = not is_deep(picture) and picture.mode not in ("1", "L", "LA")
    if coloured and len(levels) <= FEW_LEVELS and _coloured(picture):
        return (values > 0).astype(np.uint8)
    if levels[-1] < top / 2:
        listed = ", ".join(f"{v:g}" for v in levels[:6]) + (", …" if len(levels) > 6 else "")
        raise UserError(f"{shown(path)}: a mask with levels {listed}: ask for class indices, or use 0 and 255")
    between = float(((values > top / 8) & (values < top * 7 / 8)).mean())
    if len(levels) > FEW_LEVELS and between > 1 / 6:
        raise UserError(
            f"{shown(path)}: a mask with too many levels ({len(levels)}; {between:.0%} of the pixels are in between): "
            "is it a picture?"
        )
    return (values > top * 127 / 255).astype(np.uint8)


def _top(levels: np.ndarray) -> float:
    """What stands for "lesion" in a mask of these levels: 255, or the highest of deeper ones, or 1 in fractions."""
    most = float(levels[-1])
    fractions = most <= 1 and bool((levels != np.floor(levels)).any())
    return 1.0 if fractions else max(255.0, most)


def _coloured(picture: Image.Image) -> bool:
    """Whether any pixel is not gray."""
    pixels = np.asarray(flat(picture))
    return pixels.ndim == 3 and bool((pixels != pixels[..., :1]).any())


def _by_index(path: Path, picture: Image.Image, classes: int | None) -> UInt8[np.ndarray, "h w"]:
    if picture.mode == "P":
        values = np.asarray(picture)
    elif not is_deep(picture) and _coloured(picture):
        raise UserError(f"{shown(path)}: a mask in colour where class indices were asked for; declare its colours")
    else:
        values = _values(path, picture)
    levels = np.unique(values)
    if levels[-1] == 255 and set(levels.tolist()) <= {0, 255}:
        return (values > 0).astype(np.uint8)
    most = (classes or MAX_CLASSES) - 1
    if levels[0] < 0 or levels[-1] > most or bool((levels != np.floor(levels)).any()):
        raise UserError(
            f"{shown(path)}: a mask with too many levels: {len(levels)}, from {levels[0]:g} to {levels[-1]:g}, "
            f"where class indices are 0 to {most}"
        )
    return values.astype(np.uint8)


def _by_colour(path: Path, picture: Image.Image, colours: Mapping[str, int]) -> UInt8[np.ndarray, "h w"]:
    """The nearest declared colour of every pixel; whole areas of another colour are refused."""
    if is_deep(picture):
        raise UserError(f"{shown(path)}: a mask in {picture.mode} gray where colours were declared")
    pixels = np.asarray(flat(picture).convert("RGB"), dtype=np.int32)
    packed = (pixels[..., 0] << 16) | (pixels[..., 1] << 8) | pixels[..., 2]
    present, where = np.unique(packed, return_inverse=True)
    known = {0: 0} | {int(name[1:], 16): number for name, number in colours.items()}
    away = np.stack([np.abs(_channels(present) - _channels(np.array([c]))).max(axis=1) for c in known], axis=1)
    strange = (away.min(axis=1) > _COLOUR_REACH)[where].reshape(packed.shape)
    if len(present) > FEW_LEVELS:
        # JPEG and soft edges make colours between the declared ones, along edges but not over areas.
        strange &= _even(pixels)
    if strange.any():
        other, counts = np.unique(packed[strange], return_counts=True)
        most = other[np.argsort(-counts)][:4]
        raise UserError(f"{shown(path)}: undeclared colours in a mask: {', '.join(f'#{int(c):06x}' for c in most)}")
    numbers = np.array(list(known.values()), dtype=np.uint8)
    return numbers[away.argmin(axis=1)][where].reshape(packed.shape)


def _even(pixels: Int[np.ndarray, "h w 3"], reach: int = 12) -> Bool[np.ndarray, "h w"]:
    """Pixels whose four neighbours have their colour, nearly."""
    even = np.ones(pixels.shape[:2], dtype=bool)
    for axis in (0, 1):
        step = np.abs(np.diff(pixels, axis=axis)).max(axis=2) <= reach
        before, after = [[(0, 0), (0, 0)] for _ in range(2)]
        before[axis], after[axis] = (1, 0), (0, 1)
        even &= np.pad(step, before, constant_values=True) & np.pad(step, after, constant_values=True)
    return even


def _channels(colours: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n 3"]:
    return np.stack([colours >> 16, (colours >> 8) & 255, colours & 255], axis=1)
