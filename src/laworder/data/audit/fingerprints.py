"""What is remembered of an image to find it again: its hash, a 96×96 picture of its texture, and 143 numbers.

The picture is the gray image at 96×96, its range stretched, minus its local mean, over its local spread. That takes
away what tells little about *which* scene it is and yet makes most images of one kind correlate: brightness, contrast,
vignette, the bright skull of a head. Black surroundings, such as the frame of an endoscope, take no part in mean and
spread, since all images of one instrument share their edge. What stays is where the folds, vessels and sulci are.

The 143 numbers are its low cosine frequencies (12×12 without the mean): a perceptual hash that keeps its signs *and*
sizes, since half of the signs are noise in flat pictures. Their scalar product estimates the correlation of two
pictures, and flips and quarter turns act on them by signs and transposition alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int8, UInt8
from PIL import Image

SIDE = 96
FREQUENCIES = 12
_LEVELS = 60  # steps of the int8 picture per local standard deviation
_DARK = 16  # what is darker, of 255, is frame and not scene
_WINDOW = 17  # pixels of the 96×96 picture that count as local
_FLOOR = 6.0  # keeps sensor noise in flat areas from being blown up to texture


@dataclass(frozen=True)
class Fingerprint:
    """digest: of the decoded pixels and their shape; picture: local contrast, all zero for a featureless image."""

    digest: str
    picture: Int8[np.ndarray, "side side"]

    @property
    def featureless(self) -> bool:
        return not self.picture.any()


def fingerprint(image: UInt8[np.ndarray, "h w c"]) -> Fingerprint:
    """The fingerprint of one image, gray or RGB."""
    digest = hashlib.sha256(f"{image.shape}\0".encode())
    digest.update(np.ascontiguousarray(image).tobytes())
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).convert("L")
    small = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    return Fingerprint(digest.hexdigest(), local_contrast(small))


def local_contrast(gray: Float32[np.ndarray, "side side"]) -> Int8[np.ndarray, "side side"]:
    """(x − local mean) / (local standard deviation + a floor), cut at ±2, in steps of 1/60."""
    low, high = np.percentile(gray, (1, 99))
    if high - low < 2:
        return np.zeros(gray.shape, dtype=np.int8)
    x = _smooth(np.clip((gray - low) / max(high - low, 8.0) * 255, 0, 255).astype(np.float32))
    scene = (x >= _DARK).astype(np.float32)
    share = np.maximum(_box(scene), 1e-6)
    mean = _box(x * scene) / share
    spread = np.sqrt(np.maximum(_box(x * x * scene) / share - mean * mean, 0))
    contrast = np.where(scene > 0, (x - mean) / (spread + _FLOOR), 0)
    return np.rint(np.clip(contrast, -2, 2) * _LEVELS).astype(np.int8)


def frequencies(pictures: Int8[np.ndarray, "n side side"]) -> Float32[np.ndarray, "n k k"]:
    """The low cosine frequencies of each picture, without the mean, at length 1 (0 where there is nothing)."""
    found = np.empty((len(pictures), FREQUENCIES, FREQUENCIES), dtype=np.float32)
    cosines = torch.from_numpy(_COSINES)
    for start in range(0, len(pictures), 1024):
        part = torch.from_numpy(pictures[start : start + 1024]).float()
        found[start : start + 1024] = (cosines @ (part @ cosines.T)).numpy()
    found[:, 0, 0] = 0
    length = np.sqrt((found * found).sum(axis=(1, 2), keepdims=True))
    return found / np.maximum(length, 1e-6)


# Sums and slices, not matrix products: this runs on every core at once, where a threaded BLAS fights itself.
def _smooth(x: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Binomial weights (1 2 1) / 4 along both axes."""
    p = np.pad(x, 1, mode="edge")
    p = (p[:-2] + 2 * p[1:-1] + p[2:]) / 4
    return (p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]) / 4


def _box(x: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """The mean over a window of `_WINDOW` pixels a side, of what of it lies in the picture."""
    for _ in range(2):
        sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0, dtype=np.float64)])
        k = np.arange(len(x))
        low, high = np.maximum(k - _WINDOW // 2, 0), np.minimum(k + _WINDOW // 2 + 1, len(x))
        x = ((sums[high] - sums[low]) / (high - low)[:, None]).T
    return x.astype(np.float32)


def _cosines() -> Float32[np.ndarray, "k side"]:
    k, x = np.arange(FREQUENCIES)[:, None], np.arange(SIDE)[None]
    scale = np.where(k == 0, np.sqrt(0.5), 1.0) * np.sqrt(2 / SIDE)
    return (scale * np.cos(np.pi * (2 * x + 1) * k / (2 * SIDE))).astype(np.float32)


_COSINES = _cosines()
