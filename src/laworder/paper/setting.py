"""In what setting a study is made: how big, on which data, by which recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from laworder.data.prepared import is_prepared, read_index
from laworder.errors import UserError

Scale = Literal["demo", "small", "paper"]
SEEDS = {"demo": (0, 1), "small": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}
DATASETS = {"polyps": "Polyps", "kits19": "KiTS19", "brisc": "BRISC"}
DRAWN = {"data": "phantom", "phantom.modality": "mr"}
"""What stands for all data at demo scale. Lesions in drawn MR are found after a few hundred steps of the smallest
networks; in drawn colonoscopy they are not, and every Dice would be 0."""
STAND_IN = "polyps"
ONE = "at demo scale one drawn data set stands for all"
STANDS = "Drawn MR pictures stand where the paper has polyps: they show that the parts work, and compare with nothing."


@dataclass(frozen=True)
class Setting:
    """scale: demo (drawn data, minutes), small (real data; compact diffusion model) or paper (SD 1.5)
    recipe: preset of `seg train`; sets: data set → folder of prepared data; judge, features …: see `Config` of
    `paper run`; seeds: of every cell"""

    scale: Scale = "demo"
    seeds: tuple[int, ...] = (0, 1)
    recipe: str = "paper"
    sets: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)

    @property
    def drawn(self) -> bool:
        """Whether drawn data stand in for the real ones: then the paper's numbers compare with nothing."""
        return self.scale == "demo"

    def called(self, dataset: str) -> str:
        """What a page calls the data set: drawn data never go by the name of those that they stand for."""
        return "Drawn MR" if self.drawn else DATASETS[dataset]

    def folder(self, dataset: str) -> str | None:
        """Where a data set lies; None where it was not given."""
        return self.sets.get(dataset)

    def pool(self, dataset: str, *pools: str) -> str | None:
        """The first of the pools that the prepared data holds, as FOLDER:POOL."""
        folder = self.sets.get(dataset)
        if folder is None:
            return None
        held = read_index(Path(folder).expanduser())["pools"]
        return next((f"{folder}:{pool}" for pool in pools if held.get(pool)), None)


def checked_sets(given: Mapping[str, Path | None]) -> dict[str, str]:
    """The folders of the data sets that were given, each prepared."""
    for dataset, folder in given.items():
        if folder is not None and not is_prepared(folder.expanduser()):
            raise UserError(
                f"data.{dataset}: {folder} holds no prepared data; `laworder data prepare {dataset} --from DOWNLOAD "
                f"--to {folder}` makes it"
            )
    return {dataset: str(folder) for dataset, folder in given.items() if folder is not None}


def parse_seeds(text: str | None, scale: Scale) -> tuple[int, ...]:
    """`0-4`, `0,2,5` or one number; None is the scale's own."""
    if text is None:
        return SEEDS[scale]
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or (dash and int(high) < int(low)):
            raise UserError(f"seeds: expected such as 0-4 or 0,2,5, not {text!r}")
        seeds += range(int(low), int(high or low) + 1)
    if len(set(seeds)) != len(seeds):
        raise UserError(f"seeds: {text!r} names one twice")
    return tuple(seeds)
