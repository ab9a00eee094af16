"""From a folder to splits: which parts it has, and a source for each that puts up with faults.

- A folder with images and masks (in any way that `sources.matching` knows) is one split.
- Folders below it that each hold an image folder and a mask folder are its splits: `train/images` + `train/masks`,
  `TestDataset/ETIS/images` + …; so are the same subfolders on both sides: `images/train` + `masks/train`.
- Prepared data (`laworder data prepare`) has those of its pools as splits that hold each pair once; FOLDER:POOL is one
  pool alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from laworder.data.pairs import Pair, Source
from laworder.data.prepared import PreparedSource, is_prepared
from laworder.data.sources.folder import groups_of, read_match, scan
from laworder.data.sources.images import open_picture, picture_suffixes, shown, upright
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import IMAGE_FOLDERS, MASK_FOLDERS, Match, names_of
from laworder.errors import UserError

PARTS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


class Opened(NamedTuple):
    """A split to audit, and what is wrong with its files already."""

    source: Source
    problems: list[str]


class MatchedFiles:
    """Pairs of files behind the `Source` protocol; a faulty one only shows when it is read."""

    def __init__(self, pairs: Sequence[Match], *, rule: MaskRule, group: str) -> None:
        self.pairs, self.rule = list(pairs), rule
        keys = [pair.key for pair in self.pairs]
        self.names = names_of(keys)
        self.groups = groups_of(keys, self.names, group)

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> Pair:
        image, mask = read_match(self.pairs[index], self.rule)
        return Pair(image=image, mask=mask, name=self.names[index], group=self.groups[index])


class MaskFiles:
    """Masks alone behind the `Source` protocol: images without channels."""

    def __init__(self, folder: Path, *, rule: MaskRule, group: str) -> None:
        files = sorted(f for f in folder.rglob("*") if f.is_file() and f.suffix.lower() in picture_suffixes())
        if not files:
            raise UserError(f"{shown(folder)}: holds no masks in a format that is read here")
        keys = [f.relative_to(folder).with_suffix("").as_posix() for f in files]
        self.pairs = [Match(file, file, key) for file, key in zip(files, keys, strict=True)]
        self.rule, self.names = rule, names_of(keys)
        self.groups = groups_of(keys, self.names, group)

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> Pair:
        file = self.pairs[index].mask
        mask = self.rule.read(file, upright(*open_picture(file)))
        image = np.zeros((*mask.shape, 0), dtype=np.uint8)
        return Pair(image=image, mask=mask, name=self.names[index], group=self.groups[index])


class MasksOf:
    """The masks of any source, without their images."""

    def __init__(self, source: Source) -> None:
        self.source, self.names, self.groups = source, source.names, source.groups

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> Pair:
        pair = self.source.read(index)
        return replace(pair, image=np.zeros((*pair.mask.shape, 0), dtype=np.uint8))


def open_splits(folder: Path, *, rule: MaskRule, group: str, masks_only: bool = False) -> dict[str, Opened]:
    """The splits in a folder, by name."""
    prepared = _prepared(folder)
    if prepared:
        return {name: Opened(MasksOf(one) if masks_only else one, []) for name, one in prepared.items()}
    _must_be_folder(folder)
    own = folder.resolve().name or "data"
    found = {} if masks_only else split_folders(folder)
    if not found:
        return {own: open_whole(folder, rule=rule, group=group, masks_only=masks_only)}
    return {own if part == "." else part: _matched(*sides, rule, group) for part, sides in found.items()}


def open_whole(folder: Path, *, rule: MaskRule, group: str, masks_only: bool = False) -> Opened:
    """All of a folder, or of a pool, as one split, under the names that `laworder data split` knows."""
    prepared = _pool_or_all(folder)
    if prepared is not None:
        return Opened(MasksOf(prepared) if masks_only else prepared, [])
    _must_be_folder(folder)
    return Opened(MaskFiles(folder, rule=rule, group=group), []) if masks_only else _matched(folder, None, rule, group)


def _must_be_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{shown(folder)}: {'not a folder' if folder.exists() else 'no such folder'}")


def _matched(images: Path, masks: Path | None, rule: MaskRule, group: str) -> Opened:
    seen = scan(images, masks, decode=False)
    return Opened(MatchedFiles(seen.pairs, rule=rule, group=group), seen.problems)


def split_folders(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Split → its folders of images and of masks; empty where no folder holds one of each.

    A split is named by the last part of its path where that tells all of them apart, else by the path.
    """
    found: dict[str, tuple[Path, Path]] = {}
    for here in [folder, *sorted(p for p in folder.rglob("*") if p.is_dir())]:
        sides = [_only(here, known) for known in (IMAGE_FOLDERS, MASK_FOLDERS)]
        images, masks = sides
        if images is None or masks is None:
            continue
        parts = sorted(p.name for p in images.iterdir() if p.is_dir() and p.name.lower() in PARTS)
        if parts and all((masks / part).is_dir() for part in parts):
            found |= {(here / part).relative_to(folder).as_posix(): (images / part, masks / part) for part in parts}
        else:
            found[here.relative_to(folder).as_posix()] = (images, masks)
    found = dict(sorted(found.items(), key=lambda item: (_rank(Path(item[0]).name.lower()), item[0])))
    short = [Path(part).name for part in found]
    return dict(zip(short, found.values(), strict=True)) if "" not in short and len(set(short)) == len(short) else found


def _rank(name: str) -> int:
    """Training first, then validation, then test."""
    return next((k for k, part in enumerate(("train", "val")) if name.startswith(part)), 2)


def _only(folder: Path, known: frozenset[str]) -> Path | None:
    """The one subfolder of these names."""
    there = [p for p in sorted(folder.iterdir()) if p.is_dir() and p.name.lower() in known]
    return there[0] if len(there) == 1 else None


def _pool_or_all(folder: Path) -> PreparedSource | None:
    """Prepared data in a folder, or the one pool that FOLDER:POOL names."""
    place, colon, pool = str(folder).rpartition(":")
    if colon and not folder.exists() and is_prepared(Path(place)):
        return PreparedSource(Path(place), pool)
    return PreparedSource(folder) if is_prepared(folder) else None


def _prepared(folder: Path) -> dict[str, PreparedSource]:
    """The splits of prepared data; nothing where there is none."""
    whole = _pool_or_all(folder)
    if whole is None:
        return {}
    pools = apart(whole.pools, len(whole)) if whole.folder == folder else []
    own = folder.resolve().name.rpartition(":")[2] or "data"
    return {pool: PreparedSource(folder, pool) for pool in pools} if len(pools) > 1 else {own: whole}


def apart(pools: Mapping[str, Sequence[str]], count: int) -> list[str]:
    """The most pools that hold each of `count` pairs once: train, ETIS and ColonDB rather than `order`, their sum.

    Nothing where no choice of pools does that.
    """

    def best(left: list[str], taken: frozenset[str]) -> list[str] | None:
        if len(taken) == count:
            return []
        found: list[str] | None = None
        for k, pool in enumerate(left):
            names = frozenset(pools[pool])
            if names and not names & taken:
                rest = best(left[k + 1 :], taken | names)
                if rest is not None and (found is None or len(rest) >= len(found)):
                    found = [pool, *rest]
        return found

    return best(list(pools), frozenset()) or []


def labels_of(folders: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells all of them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-depth:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise AssertionError("a folder is given twice")


def join(folders: Mapping[str, Mapping[str, Opened]]) -> dict[str, Opened]:
    """The splits of several folders in one mapping, with their folder's name where theirs is not enough."""
    often: dict[str, int] = {}
    for splits in folders.values():
        for name in splits:
            often[name] = often.get(name, 0) + 1
    joined: dict[str, Opened] = {}
    for folder, splits in folders.items():
        for name, opened in splits.items():
            long = folder if Path(folder).name == name else f"{folder}/{name}"
            key = name if often[name] == 1 else long
            joined[key if key not in joined else f"{key} ({len(joined)})"] = opened
    return joined
