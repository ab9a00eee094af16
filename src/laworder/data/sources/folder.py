"""Images and masks in folders: match them, look at every file once, say all that is wrong at once.

    pairs = FolderSource("data/images", "data/masks")        # or FolderSource("data"): see `matching`

What a picture file becomes is decided in `images`, what a mask means in `masks`. A photograph's EXIF orientation turns
image and mask alike: a mask with an orientation of its own is turned by that; one without follows its image, unless
only the upright image has the mask's size, in which case the mask was drawn upright.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from laworder.data.pairs import Pair
from laworder.data.parallel import over_cores
from laworder.data.sources.images import converted, open_picture, shown, upright
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import Match, match, names_of
from laworder.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class FolderScan:
    """What lies in a folder: the pairs that can be used, and one line for every file that cannot."""

    pairs: list[Match]
    problems: list[str]

    def require(self, where: str) -> list[Match]:
        """The pairs; UserError with every problem where there is any."""
        if self.problems:
            count = len(self.problems)
            head = f"{where}: {count} problem{'s' if count > 1 else ''} with images and masks; mend or remove them:"
            raise UserError("\n  ".join([head, *self.problems]))
        return self.pairs


def scan(
    images: Path | str,
    masks: Path | str | None = None,
    *,
    rule: MaskRule | None = None,
    decode: bool = True,
    workers: int | None = None,
    progress: bool = True,
) -> FolderScan:
    """Match and, with `decode`, read every pair. Only a folder that is not there raises; all else is a problem listed.

    images, masks: the two folders, or one that holds both
    """
    matches, problems = match(Path(images), None if masks is None else Path(masks))
    if decode:
        lines: list[list[str]] = [[] for _ in matches]

        def look(index: int) -> None:
            try:
                read_match(matches[index], rule or MaskRule())
            except UserError as error:
                lines[index] = str(error).split("\n")

        over_cores(look, len(matches), workers=workers, label="checking" if progress else None)
        problems += [line for found in lines for line in found]
        matches = [m for m, found in zip(matches, lines, strict=True) if not found]
    return FolderScan(matches, problems)


def read_match(pair: Match, rule: MaskRule) -> tuple[UInt8[np.ndarray, "h w c"], UInt8[np.ndarray, "h w"]]:
    """Image and mask of one pair, upright; UserError has one line for each of the two files that is at fault."""
    wrong: list[str] = []
    image = _tried(lambda: open_picture(pair.image), wrong)
    mask = _tried(lambda: open_picture(pair.mask), wrong)
    if image is None or mask is None:
        raise UserError("\n".join(wrong))
    picture, drawn = _turned(image, mask)
    if picture.size != drawn.size:
        (w, h), (mw, mh) = picture.size, drawn.size
        wrong.append(f"{shown(pair.mask)}: {mw}×{mh} pixels, but its image {shown(pair.image)} has {w}×{h}")
    pixels = _tried(lambda: converted(pair.image, picture), wrong)
    classes = _tried(lambda: rule.read(pair.mask, drawn), wrong)
    if pixels is None or classes is None or wrong:
        raise UserError("\n".join(wrong))
    return pixels, classes


def _tried(work: Callable[[], T], wrong: list[str]) -> T | None:
    try:
        return work()
    except UserError as error:
        wrong.append(str(error))
        return None


def _turned(image: tuple[Image.Image, int], mask: tuple[Image.Image, int]) -> tuple[Image.Image, Image.Image]:
    """Both upright; see the module's first lines for a mask that does not say how it lies."""
    (picture, turn), (drawn, own) = image, mask
    standing = upright(picture, turn)
    if own == 1 and drawn.size == picture.size:
        own = turn
    return standing, upright(drawn, own)


class FolderSource:
    """Pairs of picture files behind the `Source` protocol.

    images, masks: the two folders, or one that holds both
    rule: what the values of a mask mean; lesion or not by default
    group: what must stay on one side of a split: "image" (each by itself), "folder" (all in one subfolder), or a
        regular expression whose first group, searched in folder/stem, is the patient: r"(case_\\d+)"
    check: read every file first, and name all that are wrong in one error; without, each is found when it is read
    """

    def __init__(
        self,
        images: Path | str,
        masks: Path | str | None = None,
        *,
        rule: MaskRule | None = None,
        group: str = "image",
        check: bool = True,
        progress: bool = True,
    ) -> None:
        self.rule = rule or MaskRule()
        found = scan(images, masks, rule=self.rule, decode=check, progress=progress)
        self.pairs = found.require(shown(images))
        keys = [pair.key for pair in self.pairs]
        self.names = names_of(keys)
        self.groups = groups_of(keys, self.names, group)

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> Pair:
        """Decode pair `index`; UserError names the file when that fails."""
        image, mask = read_match(self.pairs[index], self.rule)
        return Pair(image=image, mask=mask, name=self.names[index], group=self.groups[index])


def groups_of(keys: list[str], names: list[str], group: str) -> list[str]:
    """The group of every key: see `FolderSource`."""
    if group == "image":
        return list(names)
    if group == "folder":
        return [key.rpartition("/")[0] or "." for key in keys]
    try:
        pattern = re.compile(group)
    except re.error as error:
        raise UserError(f"group {group!r} is neither 'image' nor 'folder' nor a regular expression: {error}") from error
    if pattern.groups < 1:
        raise UserError(f"group {group!r} has no parentheses around the part that names the patient")
    found = [pattern.search(key) for key in keys]
    missed = [key for key, hit in zip(keys, found, strict=True) if hit is None or hit[1] is None]
    if missed:
        listed = ", ".join(map(shown, missed[:5])) + (f" and {len(missed) - 5} more" if len(missed) > 5 else "")
        raise UserError(f"group {group!r} is not found in {listed}")
    return [hit[1] for hit in found if hit is not None]
