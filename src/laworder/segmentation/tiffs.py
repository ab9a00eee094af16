"""TIFFs of many pages or of any size → TIFFs of masks with as many pages, of the same size and resolution.

A page is decoded tile by tile (or strip by strip) as the window comes down over it, and its mask is packed and set
aside tile by tile, so that neither is ever whole in memory. Pages of ordinary size are shrunk to the model's size like
any picture. Tags are not copied, except for the resolution.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from laworder.data.sources.images import MAX_PIXELS, deep_to_bytes, shown
from laworder.errors import MissingExtraError, UserError
from laworder.runs.files import WriteError
from laworder.segmentation.pictures import Job, Options, Outcome, in_channels, shrunk, stretched
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmentation.tiff_writing import Spool, Target
from laworder.segmentation.volumes import to_gray
from laworder.segmentation.windows import blend

MAX_SEGMENT = 2**28
"""Pixels of the largest tile or strip that is decoded."""
_DAMAGE = (OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, RuntimeError, zlib.error)


def _tifffile() -> Any:
    try:
        import tifffile
    except ImportError as error:
        raise MissingExtraError("tifffile", "medical") from error
    return tifffile


def is_stack_or_large(path: Path) -> bool:
    """Whether a TIFF has more than one page, or one that is too large to hold; a damaged one has neither."""
    try:
        library = _tifffile()
    except MissingExtraError:
        return False  # Pillow then reads what it can, and says what it cannot
    try:
        with library.TiffFile(path) as file:
            first = file.pages[0]
            return len(file.pages) > 1 or first.imagewidth * first.imagelength > MAX_PIXELS
    except (library.TiffFileError, *_DAMAGE):
        return False


def predict_tiff(
    job: Job, *, predictor: Predictor, options: Options, intensity: tuple[float, float] | None = None
) -> Outcome:
    """All pages of one file. Overlays are not made."""
    library = _tifffile()
    job.target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as exits:
        masks = exits.enter_context(Target(library, job.target))
        maps = exits.enter_context(Target(library, job.beside("probability", job.target.suffix)))
        try:
            file = exits.enter_context(library.TiffFile(job.source))
            found: list[_Found] = []
            for page in file.pages:
                rows = PageRows(job.source, page, predictor.channels, intensity)
                found.append(_predict_page(rows, predictor, options, masks, maps))
        except (UserError, WriteError):
            raise
        except (library.TiffFileError, *_DAMAGE) as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise UserError(f"{shown(job.source)}: not readable as TIFF ({reason}); replace or remove it") from error
        if options.probabilities:
            maps.keep()
        masks.keep()
    lesion, pixels = sum(f.lesion for f in found), sum(f.pixels for f in found)
    return Outcome(job.source, job.target, len(found), lesion / pixels, max(f.highest for f in found))


@dataclass
class _Found:
    """Tally of one page."""

    lesion: int = 0
    pixels: int = 0
    highest: float = 0.0


def _predict_page(rows: PageRows, predictor: Predictor, options: Options, masks: Target, maps: Target) -> _Found:
    found = _Found()
    mask_tiles, map_tiles = (Spool(masks.path.parent, rows.height, rows.width) for _ in range(2))
    with mask_tiles, map_tiles:
        for p in _bands(rows, predictor, options):
            classes = classes_of(torch.from_numpy(p)[None], options.threshold)[0].numpy()
            share = p[0] if len(p) == 1 else 1 - p[0]
            mask_tiles.add(classes * 255 if len(p) == 1 else classes)
            if options.probabilities:
                map_tiles.add((share * 65535 + 0.5).astype(np.uint16))
            found.lesion += int((classes > 0).sum())
            found.pixels += classes.size
            found.highest = max(found.highest, float(share.max()))
        masks.write(mask_tiles, rows.page, np.uint8)
        if options.probabilities:
            maps.write(map_tiles, rows.page, np.uint16)
    return found


class PageRows:
    """One page in bands of rows, from whichever of its tiles or strips they touch; those behind are let go."""

    def __init__(self, path: Path, page: Any, channels: int, intensity: tuple[float, float] | None) -> None:
        self.path, self.page, self.channels, self.intensity = path, page, channels, intensity
        self.height, self.width = int(page.imagelength), int(page.imagewidth)
        self.large = self.height * self.width > MAX_PIXELS
        self._held: dict[int, np.ndarray] = {}
        self._check()

    def _check(self) -> None:
        page, where = self.page, f"{shown(self.path)}, page {self.page.index + 1}"
        if page.imagedepth != 1 or page.samplesperpixel not in (1, 3, 4) or (page.planarconfig != 1 and self.large):
            raise UserError(f"{where}: its layout ({page.axes}, {page.shape}) is not read; save it as gray or RGB")
        deep = page.dtype is None or page.dtype.itemsize > 1
        if deep and self.large and self.intensity is None:
            raise UserError(f"{where}: {page.dtype} values of a page this large need --intensity LOW,HIGH")
        if self.large and self._rows_each() * self._wide() > MAX_SEGMENT:
            raise UserError(
                f"{where}: {self._wide()}×{self._rows_each()} pixels in one piece; save it in tiles (for example "
                "vips tiffsave --tile, or tifffile with tile=(256, 256))"
            )

    def _rows_each(self) -> int:
        return int(self.page.tilelength if self.page.is_tiled else min(self.page.rowsperstrip, self.height))

    def _wide(self) -> int:
        return int(self.page.tilewidth if self.page.is_tiled else self.width)

    def whole(self) -> UInt8[np.ndarray, "h w c"]:
        """A page of ordinary size."""
        pixels = self.page.asarray()
        if self.page.planarconfig != 1 and pixels.ndim == 3:
            pixels = np.moveaxis(pixels, 0, -1)
        return self._bytes(pixels if pixels.ndim == 3 else pixels[..., None])

    def read(self, low: int, high: int) -> UInt8[np.ndarray, "n w c"]:
        """Rows low … high − 1, as the model takes them."""
        each = self._rows_each()
        wanted = range(low // each, -(-high // each))
        self._held = {row: band for row, band in self._held.items() if row >= wanted.start}
        for row in wanted:
            if row not in self._held:
                self._held[row] = self._decoded(row)
        joined = np.concatenate([self._held[row] for row in wanted])
        return joined[low - wanted.start * each : high - wanted.start * each]

    def _decoded(self, row: int) -> UInt8[np.ndarray, "n w c"]:
        """One row of tiles, or one strip."""
        page, each, wide = self.page, self._rows_each(), self._wide()
        across = -(-self.width // wide)
        band = np.zeros((min(each, self.height - row * each), self.width, self.channels), np.uint8)
        for column in range(across):
            index = row * across + column
            offset, length = page.dataoffsets[index], page.databytecounts[index]
            if length == 0:
                continue  # sparse: a tile that was never written is empty
            page.parent.filehandle.seek(offset)
            data, _, shape = page.decode(page.parent.filehandle.read(length), index, jpegtables=page.jpegtables)
            if data is None:
                continue
            left = column * wide
            tile = self._bytes(data.reshape(data.shape[-3:])[: shape[-3], : shape[-2]])
            part = band[: tile.shape[0], left : left + tile.shape[1]]
            part[:] = tile[: part.shape[0], : part.shape[1]]
        return band

    def _bytes(self, pixels: np.ndarray) -> UInt8[np.ndarray, "h w c"]:
        """Gray or RGB bytes; alpha is left out."""
        pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
        if self.page.photometric == 0:  # white is zero
            pixels = pixels.max() - pixels if pixels.dtype.kind == "f" else np.iinfo(pixels.dtype).max - pixels
        if self.page.photometric == 3:
            pixels = (self.page.colormap[:, pixels[..., 0]] >> 8).astype(np.uint8).transpose(1, 2, 0)
        if self.intensity is not None and pixels.shape[2] == 1:
            pixels = to_gray(pixels[..., 0], *self.intensity)
        elif pixels.dtype == np.bool_:
            pixels = pixels.astype(np.uint8) * 255
        elif pixels.dtype != np.uint8:
            pixels = np.stack([deep_to_bytes(pixels[..., c]) for c in range(pixels.shape[2])], axis=-1)
        array = np.asarray(in_channels(np.ascontiguousarray(pixels), self.channels))
        return array[..., None] if array.ndim == 2 else array


def _bands(rows: PageRows, predictor: Predictor, options: Options) -> Iterator[Float[np.ndarray, "k n w"]]:
    side = options.large_window if rows.large else options.window
    if side is not None:
        yield from blend(rows, predictor, side=side, overlap=options.overlap, batch=options.batch)
        return
    if rows.large:
        raise UserError(
            f"{shown(rows.path)}: {rows.width}×{rows.height} pixels are too many to shrink at once; use --mode window"
        )
    small = shrunk(in_channels(rows.whole(), predictor.channels), predictor.size)
    yield stretched(predictor(small[None])[0].numpy(), rows.width, rows.height)
