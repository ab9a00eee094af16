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
    """The image of one pair with its mask outlined; of a mask alone, the mask."""
    pair = source.read(one.index)
    if pair.image.shape[2] == 0:
        small = Image.fromarray(((pair.mask > 0) * 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BOX)
        return picture_uri(np.asarray(small.convert("RGB"))), f"mask of {one.name}"
    image, mask = resize_pair(pair, SIDE, 3)
    return picture_uri(contour(image, mask > 0), quality=80), f"{one.split}: {one.name}"


def pair_row(audit: Audit, sources: Mapping[str, Source], a: int, b: int) -> list[Picture]:
    """Two images side by side."""
    return [outlined(sources[audit.looks[i].split], audit.looks[i]) for i in (a, b)]


def worst_fits(page: Page, split: SplitAudit, source: Source) -> None:
    """The tested images whose own mask fits worst beside other images' masks."""
    if split.alignment is None or not split.alignment.worst:
        return
    by_index = {one.index: one for one in split.looks}
    chosen = [by_index[index] for _, index in split.alignment.worst[:COLUMNS]]
    names = ", ".join(one.name for one in chosen)
    caption = f"{split.name}: masks that fit their image worst; look whether they belong to it. {names}."
    page.sheet([[outlined(source, one) for one in chosen]], caption=caption)


def lost_lesions(page: Page, audit: Audit, split: SplitAudit, source: Source) -> None:
    """Images whose lesions vanish on the finest of the latents' grids, or else on the coarsest."""
    latents = sorted(
        (g for g, grid in enumerate(audit.grids) if grid.side != grid.size), key=lambda g: -audit.grids[g].side
    )
    for g in latents:
        gone = [one for one in split.looks if len(one.fates.kept) and bool((one.fates.kept[:, g, 0] == 0).any())]
        if gone:
            chosen = gone[:_VANISHED]
            names = ", ".join(one.name for one in chosen)
            caption = (
                f"{split.name}: {len(gone)} masks have a lesion that vanishes on {audit.grids[g].name} under nearest; "
                f"shown are {names}."
            )
            page.sheet([[outlined(source, one) for one in chosen]], caption=caption)
            return
