"""`laworder data split`: who trains and who is held out, written down once and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laworder.config import group, option
from laworder.console import say
from laworder.data.load import lesion_fractions
from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import Source
from laworder.data.prepared import PreparedSource
from laworder.data.sources.images import shown
from laworder.data.split_files import read_splits, write_nnunet, write_splits
from laworder.data.splits import Split, make_folds, make_split
from laworder.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Config:
    """Split pairs into parts by seed, keep patients whole, and write the split down. A split file that exists already
    is checked against the data and reused, never overwritten. With --preset paper, the paper's splits: by image, 90 to
    10, seeds 0 to 4 (2026 pairs: 1823 and 203; 5000 pairs: 4500 and 500)."""

    data: str = option(meaning="prepared folder, FOLDER:POOL, folder of images and masks, or phantom", positional=True)
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("splits"), "folder for the split files, one for each seed: split-SEED.json")
    seeds: tuple[int, ...] = option((0,), "a split for each of these seeds", minimum=0)
    by: Literal["group", "image"] = option("group", "what must not cross the split; the paper splits by image")
    val: float = option(0.1, "share of the pairs that is held out for validation", above=0, maximum=0.9)
    test: float = option(0.0, "share of the pairs that is held out for a test", minimum=0, maximum=0.9)
    folds: int = option(0, "cross-validation in this many folds instead of val and test; 0: none", minimum=0)
    stratify: bool = option(False, "give every part its share of empty masks, small and large lesions")
    nnunet: Path | None = option(None, "also write nnU-Net's splits_final.json here: a fold for each split made")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    what = f"{config.folds} folds" if config.folds else f"{config.val:.0%} for validation, {config.test:.0%} for a test"
    steps = [f"read the names and groups of {config.data}", f"split them by {config.by}: {what}"]
    steps += [f"write {path(config, seed)}, or check and reuse it" for seed in config.seeds]
    return steps + ([f"write {config.nnunet}"] if config.nnunet else [])


def run(config: Config) -> None:
    if not config.seeds or len(set(config.seeds)) != len(config.seeds):
        raise UserError(f"seeds: give at least one, and each once, not {','.join(map(str, config.seeds)) or 'none'}")
    if config.folds == 1:
        raise UserError("folds: 2 or more, or 0 for a plain split")
    source = open_source(config.data, masks=config.masks, size=64, phantom=config.phantom)
    areas = _areas(source) if config.stratify else None
    # All of them first: a file that does not fit leaves the others unwritten too.
    made = [(path(config, seed), _splits(config, source, seed, areas)) for seed in config.seeds]
    for file, (splits, reused) in made:
        if not reused:
            write_splits(file, splits)
        for number, split in enumerate(splits):
            fold = f" fold {number}" if len(splits) > 1 else ""
            say(f"{shown(file)}{fold}: {_sizes(split)}{' (reused)' if reused else ''}")
    if config.nnunet is not None:
        write_nnunet(config.nnunet, [split for _, (splits, _) in made for split in splits])
        say(f"{shown(config.nnunet)}: {sum(len(splits) for _, (splits, _) in made)} folds for nnU-Net")


def path(config: Config, seed: int) -> Path:
    """Where the split of a seed is written."""
    return config.out / f"split-{seed}.json"


def _splits(config: Config, source: Source, seed: int, areas: Sequence[float] | None) -> tuple[list[Split], bool]:
    """The splits of one seed, and whether they come from a file that was there."""
    made = _make(config, source, seed, areas)
    file = path(config, seed)
    if not file.exists():
        return made, False
    found = read_splits(file, source.names)
    if (found[0].seed, found[0].by, len(found)) != (seed, config.by, len(made)):
        raise UserError(
            f"{shown(file)}: was made with seed {found[0].seed}, by {found[0].by}, as {len(found)} splits; these "
            f"settings ask for seed {seed}, by {config.by}, {len(made)}; remove it, or choose another --out"
        )
    if _names(found) != _names(made):
        raise UserError(f"{shown(file)}: was made with other fractions or strata; remove it, or choose another --out")
    return found, True


def _names(splits: Sequence[Split]) -> list[tuple[set[str], set[str], set[str]]]:
    return [(set(split.train), set(split.val), set(split.test)) for split in splits]


def _make(config: Config, source: Source, seed: int, areas: Sequence[float] | None) -> list[Split]:
    names, groups = source.names, source.groups
    if config.folds:
        return make_folds(names, groups, folds=config.folds, seed=seed, by=config.by, areas=areas)
    return [make_split(names, groups, val=config.val, test=config.test, seed=seed, by=config.by, areas=areas)]


def _areas(source: Source) -> list[float]:
    """Lesion areas: prepared data has them written down."""
    if isinstance(source, PreparedSource):
        return [source.lesion_fraction(index) for index in range(len(source))]
    return lesion_fractions(source)


def _sizes(split: Split) -> str:
    parts = {"train": split.train, "val": split.val, "test": split.test}
    return ", ".join(f"{name} {len(members)}" for name, members in parts.items() if members)
