"""Picture files → mask files that lie pixel by pixel over them.

The mask of a picture is as large as the picture is stored: where a photograph's EXIF orientation turns it, the model
sees it upright, and its mask is turned back. A format that would blur a mask (JPEG, WebP, …) gets a PNG.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image

from laworder.data.sources.images import converted, open_picture, upright
from laworder.report.pictures import PREDICTION, contour
from laworder.runs.files import WriteError, partial_name
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmentation.windows import ArrayRows, blend

LOSSLESS = frozenset({".png", ".bmp", ".tif", ".tiff"})
"""Suffixes whose files come back in their own format."""
_BACK = {6: 8, 8: 6}
"""EXIF orientations by the one that undoes them; the others undo themselves."""


@dataclass(frozen=True)
class Options:
    """What is written, and how large pictures are cut.

    window: side of the sliding window; None shrinks each picture to the model's size and stretches the result back
    large_window: the same for pages that are too large to hold; None refuses them
    """

    threshold: float = 0.5
    probabilities: bool = False
    overlays: bool = False
    window: int | None = None
    large_window: int | None = None
    overlap: float = 0.25
    batch: int = 16


@dataclass(frozen=True)
class Job:
    """A file to predict, and where its mask goes."""

    source: Path
    target: Path

    def beside(self, kind: str, suffix: str = ".png") -> Path:
        """Where a further result of this file goes."""
        stem = self.target.name.removesuffix(".gz").rpartition(".")[0]
        return self.target.with_name(f"{stem}_{kind}{suffix}")


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `lesion` is the share of its pixels that is lesion, over all its pages or slices."""

    source: Path
    target: Path | None = None
    pictures: int = 0
    lesion: float = float("nan")
    highest: float = float("nan")
    error: str | None = None


@dataclass(frozen=True)
class Item:
    """A decoded picture: at the model's size, or whole where windows or overlays need it."""

    job: Job
    size: tuple[int, int]
    turn: int
    small: UInt8[torch.Tensor, "c s s"] | None
    pixels: UInt8[np.ndarray, "h w c"] | None


def in_channels(pixels: UInt8[np.ndarray, "h w c"], channels: int) -> Image.Image:
    """As the model takes it, gray or RGB."""
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return picture.convert("L" if channels == 1 else "RGB")


def shrunk(picture: Image.Image, size: int) -> UInt8[torch.Tensor, "c s s"]:
    """At the model's size, filtered exactly as the training data is."""
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.array(picture, dtype=np.uint8)
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def stretched(probability: Float[np.ndarray, "k s t"], width: int, height: int) -> Float[np.ndarray, "k h w"]:
    """Probability maps at a picture's own size."""
    if probability.shape[1:] == (height, width):
        return probability
    resized = [np.asarray(Image.fromarray(p).resize((width, height), Image.Resampling.BILINEAR)) for p in probability]
    return np.stack(resized)


@dataclass(frozen=True)
class Pictures:
    """The three stages of `streaming.stream` for picture files."""

    predictor: Predictor
    options: Options

    def read(self, job: Job) -> Item:
        """Decode; UserError names a file that cannot be."""
        stored, turn = open_picture(job.source)
        pixels = converted(job.source, upright(stored, turn))
        picture = in_channels(pixels, self.predictor.channels)
        windowed = self.options.window is not None
        return Item(
            job=job,
            size=picture.size,
            turn=turn,
            small=None if windowed else shrunk(picture, self.predictor.size),
            pixels=pixels if windowed or self.options.overlays else None,
        )

    def infer(self, items: Sequence[Item]) -> list[Float[np.ndarray, "k h w"]]:
        """Probability maps, at the model's size, or at the picture's own where it goes through windows."""
        if self.options.window is None:
            maps = self.predictor(torch.stack([item.small for item in items if item.small is not None]))
            return list(maps.numpy())
        return [self._through_windows(item) for item in items]

    def _through_windows(self, item: Item) -> Float[np.ndarray, "k h w"]:
        options = self.options
        assert item.pixels is not None
        assert options.window is not None
        pixels = np.asarray(in_channels(item.pixels, self.predictor.channels))
        rows = ArrayRows(pixels[..., None] if pixels.ndim == 2 else pixels)
        bands = blend(rows, self.predictor, side=options.window, overlap=options.overlap, batch=options.batch)
        return np.concatenate(list(bands), axis=1)

    def write(self, item: Item, probability: Float[np.ndarray, "k s t"]) -> Outcome:
        """What was asked for; the mask last, so that a file whose mask is there is done."""
        maps = stretched(probability, *item.size)
        classes = classes_of(torch.from_numpy(maps)[None], self.options.threshold)[0].numpy()
        lesion = maps[0] if len(maps) == 1 else 1 - maps[0]
        job = item.job
        mask = Image.fromarray(classes * 255 if len(maps) == 1 else classes)
        if self.options.probabilities:
            levels = Image.fromarray((lesion * 65535 + 0.5).astype(np.uint16))
            save(_as_stored(levels, item.turn), job.beside("probability"))
        if self.options.overlays:
            assert item.pixels is not None
            colour = np.asarray(in_channels(item.pixels, 3))
            save(Image.fromarray(contour(colour, classes > 0, colour=PREDICTION)), job.beside("overlay"))
        save(_as_stored(mask, item.turn), job.target)
        return Outcome(job.source, job.target, 1, float((classes > 0).mean()), float(lesion.max()))


def _as_stored(upright_mask: Image.Image, turn: int) -> Image.Image:
    return upright(upright_mask, _BACK.get(turn, turn))


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture whole or not at all, in the format of its suffix. PNGs are packed fast rather than small."""
    kind = {".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF"}.get(path.suffix.lower(), "PNG")
    settings = {"PNG": {"compress_level": 1}, "TIFF": {"compression": "tiff_adobe_deflate"}}.get(kind, {})
    content = io.BytesIO()
    picture.save(content, kind, **settings)
    write_whole(path, content.getvalue())


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` at once. No fsync: of thousands of masks, any that a power cut takes is soon made again."""
    partial = partial_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
