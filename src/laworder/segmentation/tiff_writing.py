"""Masks as tiled TIFFs, packed and set aside tile by tile, and put in place whole or not at all."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from laworder.runs.files import WriteError, partial_name

TILE = 256


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}") from error


class Spool:
    """A page as packed tiles in a nameless temporary file, in the order that TIFF stores them."""

    def __init__(self, folder: Path, height: int, width: int) -> None:
        self.folder, self.height, self.width = folder, height, width
        with _writing(folder):
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 closed by __exit__
        self._sizes: list[int] = []
        self._waiting: list[np.ndarray] = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, band: np.ndarray) -> None:
        """More rows, from top to bottom."""
        self._waiting.append(band)
        while sum(len(b) for b in self._waiting) >= TILE:
            rows = np.concatenate(self._waiting)
            self._pack(rows[:TILE])
            self._waiting = [rows[TILE:]] if len(rows) > TILE else []

    def _pack(self, rows: np.ndarray) -> None:
        across = -(-self.width // TILE)
        full = np.zeros((TILE, across * TILE), rows.dtype.newbyteorder("<"))
        full[: len(rows), : self.width] = rows
        for x in range(0, across * TILE, TILE):
            data = zlib.compress(full[:, x : x + TILE].tobytes(), 1)
            self._sizes.append(len(data))
            with _writing(self.folder):
                self._file.write(data)

    def tiles(self) -> Iterator[bytes]:
        """Every packed tile."""
        if self._waiting:
            self._pack(np.concatenate(self._waiting))
            self._waiting = []
        self._file.seek(0)
        for size in self._sizes:
            yield self._file.read(size)


class Target:
    """A TIFF in the making under a temporary name; nothing is left of it unless it is kept."""

    def __init__(self, library: Any, path: Path) -> None:
        self.library, self.path, self.partial = library, path, partial_name(path)
        self._writer: Any = None

    def __enter__(self) -> Target:
        return self

    def write(self, spool: Spool, page: Any, dtype: type[np.generic]) -> None:
        """Add the mask of a page, with the page's resolution."""
        with _writing(self.path):
            if self._writer is None:
                big = spool.height * spool.width * len(page.parent.pages) > 2**30
                self._writer = self.library.TiffWriter(self.partial, bigtiff=big, byteorder="<")
            self._writer.write(
                spool.tiles(),
                shape=(spool.height, spool.width),
                dtype=np.dtype(dtype).newbyteorder("<"),
                tile=(TILE, TILE),
                compression="zlib",
                photometric="minisblack",
                metadata=None,
                software="laworder",
                **_resolution(page),
            )

    def keep(self) -> None:
        """Put the file in its place."""
        with _writing(self.path):
            self._writer.close()
            self.partial.replace(self.path)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        self.partial.unlink(missing_ok=True)


def _resolution(page: Any) -> dict[str, Any]:
    tags = page.tags
    if "XResolution" not in tags or "YResolution" not in tags:
        return {}
    unit = tags["ResolutionUnit"].value if "ResolutionUnit" in tags else 2
    return {"resolution": (tags["XResolution"].value, tags["YResolution"].value), "resolutionunit": unit}
