"""Embeddings of whole sources, by name of the encoder, kept on disk by content.

The features of n images are a memory-mapped file of n rows, written a batch at a time: memory does not grow with n.
The file is named by the hash of the extractor (its weights and its resize rule) and of every image, so that it is
found again whatever the folder is called, and never taken for another. Numbers do not depend on the size of the batch.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from numpy.lib import format as npy
from torch import Tensor
from tqdm import tqdm

from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.prepared import PreparedSource
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.images import read_image
from laworder.errors import UserError
from laworder.evaluation.extractors import INCEPTION, Extractor, extractor
from laworder.evaluation.weights import find_inception
from laworder.runs import WriteError
from laworder.runs.files import partial_name, sha256_file


class FeatureStore:
    """Features of sources, computed once.

    cache:     folder of the kept features; made where absent
    inception: file of the weights of Inception-2015, see `weights.load_inception`
    rule:      how images reach Inception's size, see `resizing`
    """

    def __init__(
        self,
        cache: Path,
        *,
        device: torch.device,
        batch: int = 16,
        inception: Path | str | None = None,
        rule: str = "pytorch-fid",
    ) -> None:
        self.cache, self.device, self.batch, self.rule = cache, device, batch, rule
        self.inception = None if inception is None else Path(inception)
        self._extractors: dict[str, Extractor] = {}
        self._digests: dict[int, tuple[Source, str]] = {}

    def of(self, source: Source, encoder: str = INCEPTION) -> Float32[np.ndarray, "n d"]:
        """One row an image, in the source's order; a read-only memory-mapped array."""
        found = self.extractor(encoder)
        if id(source) not in self._digests:  # the source is kept with it, so that its id stays its own
            self._digests[id(source)] = (source, images_hash(source))
        key = hashlib.sha256(f"{found.digest}\n{self._digests[id(source)][1]}".encode()).hexdigest()
        path = self.cache / f"{key[:32]}.npy"
        if not _is_whole(path, len(source)):
            self._compute(source, found, path)
        return np.load(path, mmap_mode="r")

    def extractor(self, encoder: str = INCEPTION) -> Extractor:
        """The extractor of that name, loaded once; UserError where it cannot be had."""
        if encoder not in self._extractors:
            self._extractors[encoder] = extractor(encoder, device=self.device, inception=self.inception, rule=self.rule)
        return self._extractors[encoder]

    @property
    def has_inception(self) -> bool:
        """Whether weights of Inception-2015 were given or lie on this machine."""
        return self.inception is not None or find_inception() is not None

    def _compute(self, source: Source, found: Extractor, path: Path) -> None:
        partial = partial_name(path)
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            rows: np.memmap | None = None
            for start, inputs in batches(source, found, self.batch):
                features = found.embed(inputs.to(self.device)).float().cpu().numpy()
                if rows is None:
                    rows = npy.open_memmap(partial, "w+", np.float32, (len(source), features.shape[1]))
                rows[start : start + len(features)] = features
            if rows is None:
                raise UserError("there is nothing to embed: the source holds no image")
            if not np.isfinite(rows).all():
                raise UserError(f"{found.label} gave features that are not finite; is its file damaged?")
            rows.flush()
            del rows  # an open mapping cannot be renamed on Windows
            partial.replace(path)
        except OSError as error:
            raise WriteError(f"cannot write {path}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)


def _is_whole(path: Path, count: int) -> bool:
    """Whether a finished file of that many rows lies there."""
    if not path.is_file():
        return False
    try:
        return len(np.load(path, mmap_mode="r")) == count
    except (ValueError, OSError, EOFError):
        return False


def batches(source: Source, found: Extractor, size: int) -> Iterator[tuple[int, Tensor]]:
    """Position of its first image, and a batch of inputs; the next ones are decoded while one is in use."""
    workers = min(os.cpu_count() or 1, 8)

    def one(index: int) -> Tensor:
        return found.prepare(image_of(source, index))

    starts = iter(range(0, len(source), size))
    with (
        ThreadPoolExecutor(workers) as pool,
        tqdm(total=len(source), desc=found.label, unit="image", disable=None, leave=False) as bar,
    ):
        coming: deque[tuple[int, list[Future[Tensor]]]] = deque()

        def order() -> None:
            for start in itertools.islice(starts, 1):
                coming.append((start, [pool.submit(one, i) for i in range(start, min(start + size, len(source)))]))

        order()
        order()
        while coming:
            order()
            start, waited = coming.popleft()
            yield start, torch.stack([future.result() for future in waited])
            bar.update(len(waited))


def image_of(source: Source, index: int) -> UInt8[np.ndarray, "h w c"]:
    """The image of pair `index`, without decoding its mask where that can be avoided."""
    if isinstance(source, FolderSource):
        return read_image(source.pairs[index].image)
    if isinstance(source, PreparedSource):
        return read_image(source.files(index)[0])
    return source.read(index).image


def images_hash(source: Source) -> str:
    """SHA-256 of all images of a source, in its order: of their files where they are files, else of their pixels."""
    digests = [""] * len(source)

    def put(index: int) -> None:
        digests[index] = _image_hash(source, index)

    over_cores(put, len(source))
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _image_hash(source: Source, index: int) -> str:
    if isinstance(source, FolderSource):
        return sha256_file(source.pairs[index].image)
    if isinstance(source, PreparedSource):
        return sha256_file(source.files(index)[0])
    pixels = source.read(index).image
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()


def subset(features: Float32[np.ndarray, "n d"], rows: Sequence[int]) -> Float32[np.ndarray, "m d"]:
    """Some rows, in memory."""
    return np.array(features[np.sort(np.asarray(rows))])
