"""Arrays → pictures inside a page: JPEG or PNG data URIs, masks as outlines."""

from __future__ import annotations

import base64
import io

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

TRUTH = (40, 220, 120)
PREDICTION = (255, 190, 30)


def picture_uri(image: UInt8[np.ndarray, "h w 3"], *, quality: int = 88, exact: bool = False) -> str:
    """An RGB picture as a JPEG data URI; as PNG where it has to stay exactly as it is."""
    kind, settings = ("PNG", {"optimize": True}) if exact else ("JPEG", {"quality": quality})
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **settings)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def gray_picture(values: Float[np.ndarray, "h w"], *, low: float, high: float) -> UInt8[np.ndarray, "h w 3"]:
    """A map as a gray picture: `low` is black, `high` is white."""
    assert high > low, "a gray scale runs from low to a higher value"
    level = np.clip((values - low) / (high - low), 0, 1)
    return np.repeat((level * 255).round().astype(np.uint8)[..., None], 3, axis=2)


def contour(
    image: UInt8[np.ndarray, "h w 3"],
    mask: Bool[np.ndarray, "h w"],
    *,
    colour: tuple[int, int, int] = TRUTH,
    width: int = 1,
) -> UInt8[np.ndarray, "h w 3"]:
    """The picture with the mask's outline drawn over it, `width` pixels wide, just inside the mask."""
    inner = mask
    for _ in range(width):
        padded = np.pad(inner, 1)
        inner = inner & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    result = image.copy()
    result[mask & ~inner] = colour
    return result
