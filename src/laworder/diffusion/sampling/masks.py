"""The masks that images are drawn for: of a data set, of a folder that holds nothing else, or varied from either.

All of them are looked at once before anything is drawn: what cannot be read is named, inverted masks are refused, and
one hash over all is what a resumption is held to.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from laworder.data.audit.folders import MaskFiles
from laworder.data.opening import PHANTOM, open_source
from laworder.data.pairs import Pair, Source, resize_pair
from laworder.data.parallel import over_cores
from laworder.data.prepared import PreparedSource, is_prepared, read_index
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.images import shown
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import match
from laworder.diffusion.sampling.field import field_of_view, union_field
from laworder.diffusion.sampling.jitter import Jitter, make_mask
from laworder.diffusion.sampling.settings import SampleConfig
from laworder.errors import UserError

Mask = UInt8[np.ndarray, "size size"]


def open_masks(config: SampleConfig, size: int) -> Source:
    """The source of the masks; of masks alone, its images have no channels. Only folders are looked at yet."""
    folder = Path(config.data).expanduser()
    if config.data == PHANTOM or not folder.is_dir() or (is_prepared(folder) and config.masks is None):
        return open_source(config.data, masks=config.masks, size=size, phantom=config.phantom)
    pairs, problems = match(folder, config.masks)
    if not pairs and config.masks is None:
        return MaskFiles(folder, rule=MaskRule(), group="image")
    if problems:
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        raise UserError(
            "\n  ".join([f"{shown(folder)}: {count} with images and masks; mend or remove them:", *problems])
        )
    return FolderSource(folder, config.masks, check=False)


def facts_of(source: Source) -> tuple[list[str], str]:
    """Names of the classes, and the terms of use, as far as the source knows them."""
    if isinstance(source, PreparedSource):
        index = read_index(source.folder)
        return list(index.get("classes", ["background", "lesion"])), str(index.get("licence", "not stated"))
    return ["background", "lesion"], "not stated"


def at_size(pair: Pair, size: int) -> tuple[Mask, UInt8[np.ndarray, "size size 3"] | None]:
    """The mask at the model's size, nearest as in training, and its image where there is one."""
    if pair.image.shape[2]:
        image, mask = resize_pair(pair, size, 3)
        return mask, image
    drawn = Image.fromarray(pair.mask).resize((size, size), Image.Resampling.NEAREST)
    return np.array(drawn, dtype=np.uint8), None


@dataclass
class Survey:
    """What one look at all masks, at the model's size, has told.

    areas: lesion pixels of each; seen: wherever any mask has a lesion; highest: the largest class
    vanished: whether a lesion was too small for the model's size
    digest: one hash over names and pixels of all of them
    """

    areas: list[int]
    inverted: list[bool]
    vanished: list[bool]
    seen: Bool[np.ndarray, "size size"]
    digest: str
    highest: int = 0

    def remarks(self, size: int) -> list[str]:
        """What is not wrong, but good to know."""
        lost, count = sum(self.vanished), len(self.areas)
        empty = sum(area == 0 for area in self.areas) - lost
        lines = [f"{empty} of {count} masks are empty; their images are to show no lesion"] if empty else []
        if lost:
            lines.append(f"{lost} of {count} lesions are too small to be seen at {size}×{size}: their masks are empty")
        return [f"note: {line}" for line in lines]


def survey(source: Source, size: int, *, workers: int | None = None, progress: bool = True) -> Survey:
    """Look at every mask; UserError names all that cannot be read, or says that the masks are upside down."""
    count = len(source)
    if count == 0:
        raise UserError("there is no mask to draw images for")
    hashes: list[bytes] = [b""] * count
    problems: list[list[str]] = [[] for _ in range(count)]
    found = Survey([0] * count, [False] * count, [False] * count, np.zeros((size, size), dtype=bool), "")
    together = threading.Lock()

    def look(index: int) -> None:
        try:
            pair = source.read(index)
        except UserError as error:
            problems[index] = str(error).split("\n")
            return
        mask, _ = at_size(pair, size)
        lesion = mask > 0
        hashes[index] = hashlib.sha256(f"{source.names[index]}\0".encode() + mask.tobytes()).digest()
        found.areas[index], found.inverted[index] = int(lesion.sum()), _inverted(lesion)
        found.vanished[index] = bool(pair.mask.any()) and not lesion.any()
        with together:
            found.highest = max(found.highest, int(mask.max()))
            found.seen |= lesion

    over_cores(look, count, workers=workers, label="looking at masks" if progress else None)
    lines = [line for several in problems for line in several]
    if lines:
        head = f"{len(lines)} problem{'s' * (len(lines) > 1)} with the masks; mend or remove the files:"
        raise UserError("\n  ".join([head, *lines]))
    _check_polarity(found, source)
    found.digest = hashlib.sha256(b"".join(hashes)).hexdigest()
    return found


def _inverted(lesion: Bool[np.ndarray, "h w"]) -> bool:
    """Whether lesion and background look exchanged: lesion covers most of the picture, and most of its frame."""
    frame = np.concatenate([lesion[0], lesion[-1], lesion[:, 0], lesion[:, -1]])
    return bool(frame.mean() > 0.5 and lesion.mean() > 0.5)


def _check_polarity(found: Survey, source: Source) -> None:
    wrong = [name for name, inverted in zip(source.names, found.inverted, strict=True) if inverted]
    if 2 * len(wrong) > len(found.inverted):
        raise UserError(
            f"the masks look inverted: in {len(wrong)} of {len(found.inverted)} of them the lesion covers the "
            f"picture's frame (first {wrong[0]!r}); lesions must be white on black"
        )


@dataclass(frozen=True)
class Masks:
    """The masks as images are drawn for them: real, or varied.

    number of a mask: with `jitter` every number, 0 too, is another variation of it; without, all are the mask itself
    """

    source: Source
    size: int
    seed: int
    jitter: Jitter | None
    areas: tuple[int, int]
    seen: Bool[np.ndarray, "size size"]

    @classmethod
    def of(cls, source: Source, size: int, found: Survey, config: SampleConfig) -> Masks:
        """UserError where there is nothing to vary."""
        jitter = config.jitter if config.augment else None
        areas = (0, 0) if jitter is None else jitter.areas(found.areas)
        return cls(source, size, config.seed, jitter, areas, found.seen)

    def read(self, index: int, number: int) -> Mask:
        """Class indices at the model's size; a function of (seed, name, number) and the real mask."""
        mask, image = at_size(self.source.read(index), self.size)
        if self.jitter is None:
            return mask
        where = union_field(self.seen) if image is None else field_of_view(image)
        name = self.source.names[index]
        return make_mask(
            mask, where | (mask > 0), areas=self.areas, jitter=self.jitter, seed=self.seed, name=name, number=number
        )
