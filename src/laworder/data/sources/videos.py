"""Which frames of a collection are from one video, where nobody wrote it down: an estimate from the pictures.

Collections cut from videos number their frames in order. Two frames in a row that look nothing alike (the correlation
of their 24×24 gray thumbnails is below `ALIKE`) are taken for the end of one video and the beginning of the next. A
video with a cut in it comes out as two, and two videos that look alike as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from PIL import Image

from laworder.data.parallel import over_cores
from laworder.data.sources.images import open_picture

ALIKE = 0.6
_SIDE = 24


def video_starts(frames: Sequence[Path]) -> list[bool]:
    """For frames in their order: whether each is the first of a video."""
    thumbnails = np.zeros((len(frames), _SIDE * _SIDE))

    def look(index: int) -> None:
        thumbnails[index] = _thumbnail(frames[index])

    over_cores(look, len(frames), label="looking for videos")
    alike = (thumbnails[1:] * thumbnails[:-1]).sum(axis=1)
    return [True, *(alike < ALIKE).tolist()] if frames else []


def _thumbnail(path: Path) -> Float64[np.ndarray, " n"]:
    """A small gray picture with mean 0 and length 1."""
    picture, _ = open_picture(path)
    small = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    values = np.asarray(small, dtype=np.float64).ravel()
    values = values - values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length > 0 else values
