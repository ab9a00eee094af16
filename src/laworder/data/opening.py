"""From what a user types to pairs: `phantom`, prepared data (or a pool of it), or a folder of images and masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laworder.config import option
from laworder.data.pairs import Source
from laworder.data.prepared import PreparedSource, is_prepared
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError

PHANTOM = "phantom"


@dataclass(frozen=True, kw_only=True)
class Phantom:
    """The drawn data, where no real data is given."""

    count: int = option(400, "pairs to draw", minimum=1)
    modality: Literal["colon", "mr", "ct", "mixed"] = option("colon", "what the pictures resemble")
    seed: int = option(0, "other seeds are other patients", minimum=0)
    distractor: float = option(0.3, "share of pictures with something lesion-like that is none", minimum=0, maximum=1)


def open_source(data: str, *, masks: Path | None, size: int, phantom: Phantom) -> Source:
    """`phantom` draws pairs at `size`; FOLDER or FOLDER:POOL is prepared data where `dataset.json` lies in it.

    Any other folder is one of images and masks, and is checked in full before it is used.
    """
    if data == PHANTOM:
        return PhantomSource(
            phantom.count, size=size, modality=phantom.modality, seed=phantom.seed, distractor=phantom.distractor
        )
    folder = Path(data).expanduser()
    place, colon, pool = data.rpartition(":")
    if colon and not folder.exists() and is_prepared(Path(place).expanduser()):
        return PreparedSource(Path(place).expanduser(), pool)
    if is_prepared(folder) and masks is None:
        return PreparedSource(folder)
    if not folder.is_dir():
        raise UserError(f"{data!r} is no folder; give a folder of images and masks, or the word {PHANTOM!r}")
    return FolderSource(folder, masks)
