"""Pairs as small pictures, read again from their sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from laworder.data.audit.look import Look
from laworder.data.pairs import Source, resize_pair
from laworder.report import Page, contour, picture_uri

if TYPE_CHECKING:
    from laworder.data.audit.study import Audit, SplitAudit

SIDE = 160
COLUMNS = 6
_VANISHED = 6

Picture = tuple[str, str]


def titled(picture: UInt8[np.ndarray, "h w 3"], side: int = SIDE) -> UInt8[np.ndarray, "side side 3"]:
    """At the side in which pictures stand on the page."""
    return np.asarray(Image.fromarray(picture).resize((side, side), Image.Resampling.BILINEAR))


def outlined(source: Source, one: Look) -> Picture:
    """The image of one pair with its mask outlined, and its name."""
    return picture_uri(_drawn(source, one), quality=80), one.name


def _drawn(source: Source, one: Look) -> UInt8[np.ndarray, "side side 3"]:
    """The image of one pair with its mask outlined; of a mask alone, the mask."""
    pair = source.read(one.index)
    if pair.image.shape[2] == 0:
        small = Image.fromarray(((pair.mask > 0) * 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BOX)
        return np.asarray(small.convert("RGB"))
    image, mask = resize_pair(pair, SIDE, 3)
    return contour(image, mask > 0)


def side_by_side(audit: Audit, sources: Mapping[str, Source], a: int, b: int) -> Picture:
    """Two images in one picture, and their names."""
    looks = [audit.looks[i] for i in (a, b)]
    both = np.concatenate([_drawn(sources[one.split], one) for one in looks], axis=1)
    same = looks[0].split == looks[1].split
    text = f"{looks[0].full_name} = {looks[1].name if same else looks[1].full_name}"
    return picture_uri(both, quality=80), text


def worst_fits(page: Page, split: SplitAudit, source: Source) -> None:
    """The tested images whose own mask fits worst beside other images' masks."""
    if split.alignment is None or not split.alignment.worst:
        return
    by_index = {one.index: one for one in split.looks}
    chosen = [by_index[index] for _, index in split.alignment.worst[:COLUMNS]]
    caption = f"{split.name}: masks that fit their image worst; look whether they belong to it."
    page.sheet([[outlined(source, one) for one in chosen]], caption=caption, labels=True)


def lost_lesions(page: Page, audit: Audit, split: SplitAudit, source: Source) -> None:
    """Images whose lesions vanish on the finest of the latents' grids, or else on the coarsest."""
    latents = sorted(
        (g for g, grid in enumerate(audit.grids) if grid.side != grid.size), key=lambda g: -audit.grids[g].side
    )
    for g in latents:
        gone = [one for one in split.looks if len(one.fates.kept) and bool((one.fates.kept[:, g, 0] == 0).any())]
        if gone:
            chosen = gone[:_VANISHED]
            some = "shown here" if len(gone) <= _VANISHED else f"the first {_VANISHED} of them"
            masks = "1 mask has" if len(gone) == 1 else f"{len(gone)} masks have"
            where = f"on {audit.grids[g].name} under nearest"
            caption = f"{split.name}: {masks} a lesion that vanishes {where}; {some}."
            page.sheet([[outlined(source, one) for one in chosen]], caption=caption, labels=True)
            return
