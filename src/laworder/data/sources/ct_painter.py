"""CT values painted from a label slice: a stand-in for scans that are not there, for trying out and for tests.

Air around an ellipse of soft tissue that contains the labels, fat beneath the skin, a spine behind, kidneys brighter
than their surroundings and tumours duller and patchy, all under noise. A function of (labels, key) alone.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float, Int16, UInt8
from PIL import Image

AIR, FAT, TISSUE, BONE, KIDNEY_HU, TUMOUR_HU = -1000.0, -100.0, 45.0, 400.0, 160.0, 85.0


def paint_slice(labels: UInt8[np.ndarray, "h w"], *, key: str) -> Int16[np.ndarray, "h w"]:
    """Hounsfield units for a slice with labels 0, 1 (kidney) and 2 (tumour)."""
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    height, width = labels.shape
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    rows, columns = (rows + 0.5) / height * 2 - 1, (columns + 0.5) / width * 2 - 1
    body = (rows / 0.72) ** 2 + (columns / 0.92) ** 2 + 0.04 * _smooth(random, labels.shape)
    values = np.full(labels.shape, AIR, dtype=np.float32)
    values[body < 1] = FAT
    values[body < 0.8] = TISSUE
    values += np.where(body < 0.8, 12, 0) * _smooth(random, labels.shape)
    spine = (rows - 0.42) ** 2 + columns**2
    values[(spine < 0.014) & (labels == 0)] = BONE
    values[labels == 1] = KIDNEY_HU
    tumour = labels == 2
    values[tumour] = (TUMOUR_HU + 35 * _smooth(random, labels.shape))[tumour]
    values += random.normal(0, 14, labels.shape).astype(np.float32)
    return np.clip(np.rint(values), -1024, 3071).astype(np.int16)


def _smooth(random: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "h w"]:
    """Noise of unit strength that varies slowly."""
    coarse = random.normal(0, 1, (12, 12)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((shape[1], shape[0]), Image.Resampling.BICUBIC))
