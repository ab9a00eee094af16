"""Splits that a seed decides, that keep patients whole, and that are written down.

Order comes from SHA-256 of (seed, group), not from a random number generator: a split depends on the names alone, not
on the order in which files were found, the platform, or a library's version. Sizes are round(fraction · n), so that the
paper's 2026 pairs give 1823 + 203 and its 5000 give 4500 + 500 when split by image.

With `by="group"` (the default) all pairs of a group land on one side, and sizes are met as nearly as groups allow; with
`by="image"` every pair stands for itself, as in the paper, and near-identical frames may sit on both sides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laworder.data.pairs import Source
from laworder.errors import UserError, nearest

PARTS = ("train", "val", "test")
WAYS = ("group", "image")


@dataclass(frozen=True)
class Split:
    """Names for each part. `seed` and `by` say how it came about; None where it was made elsewhere."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...] = ()
    seed: int | None = None
    by: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names, part by part."""
        return self.train + self.val + self.test

    def part(self, name: str) -> tuple[str, ...]:
        """The names of "train", "val" or "test"."""
        if name not in PARTS:
            raise UserError(f"no part {name!r} in a split{nearest(name, PARTS)}")
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def indices(self, part: str, names: Sequence[str]) -> list[int]:
        """Where the part's pairs stand in `names`, in the part's order."""
        where = {name: i for i, name in enumerate(names)}
        missing = [name for name in self.part(part) if name not in where]
        if missing:
            raise UserError(
                f"the split's {part} part names {len(missing)} pairs that the data lacks, first {missing[0]!r}"
            )
        return [where[name] for name in self.part(part)]


@dataclass(frozen=True)
class _Unit:
    """What moves as one: a group, or one image."""

    key: str
    members: tuple[str, ...]
    stratum: int


def split_source(
    source: Source,
    *,
    val: float = 0.1,
    test: float = 0.0,
    seed: int = 0,
    by: str = "group",
    areas: Sequence[float] | None = None,
) -> Split:
    """`make_split` of a source's names and groups."""
    return make_split(source.names, source.groups, val=val, test=test, seed=seed, by=by, areas=areas)


def make_split(
    names: Sequence[str],
    groups: Sequence[str],
    *,
    val: float = 0.1,
    test: float = 0.0,
    seed: int = 0,
    by: str = "group",
    areas: Sequence[float] | None = None,
) -> Split:
    """Train, validation and test parts.

    val, test: fractions of all pairs
    areas: lesion area of every pair; with it, each part gets its share of small and large lesions and of empty masks
    """
    if not (0 < val < 1 and 0 <= test < 1 and val + test < 1):
        raise UserError(f"split: val and test are fractions that leave something to train on, not {val} and {test}")
    units = _units(names, groups, seed=seed, by=by, areas=areas)
    wanted = 2 + (test > 0)
    if len(units) < wanted:
        raise UserError(f"split: {len(units)} {by}s cannot fill {wanted} parts; use by='image' or add data")
    chosen_val, rest = _take(units, math.floor(val * len(names) + 0.5), keep=wanted - 1)
    chosen_test, rest = _take(rest, math.floor(test * len(names) + 0.5), keep=1) if test > 0 else ([], rest)
    parts = (sorted(rest, key=lambda u: _rank(u.key, seed)), chosen_val, chosen_test)
    train, held, last = (tuple(m for unit in part for m in unit.members) for part in parts)
    return Split(train=train, val=held, test=last, seed=seed, by=by)


def make_folds(
    names: Sequence[str],
    groups: Sequence[str],
    *,
    folds: int = 5,
    seed: int = 0,
    by: str = "group",
    areas: Sequence[float] | None = None,
) -> list[Split]:
    """`folds` splits whose validation parts are disjoint and cover everything, as equal in size as groups allow."""
    units = _units(names, groups, seed=seed, by=by, areas=areas)
    if not 2 <= folds <= len(units):
        raise UserError(f"split: folds must lie between 2 and the {len(units)} {by}s there are, not {folds}")
    members: list[list[str]] = [[] for _ in range(folds)]
    for stratum in sorted({u.stratum for u in units}):
        here = [0] * folds
        # Large groups first: what is left to even out at the end is small.
        for unit in sorted((u for u in units if u.stratum == stratum), key=lambda u: -len(u.members)):
            fold = min(range(folds), key=lambda f: (here[f], len(members[f]), f))
            here[fold] += len(unit.members)
            members[fold] += unit.members
    return [
        Split(
            train=tuple(n for other in range(folds) if other != fold for n in members[other]),
            val=tuple(members[fold]),
            seed=seed,
            by=by,
        )
        for fold in range(folds)
    ]


def _units(
    names: Sequence[str], groups: Sequence[str], *, seed: int, by: str, areas: Sequence[float] | None
) -> list[_Unit]:
    """Groups or images with their stratum, in the order that the seed gives them."""
    if by not in WAYS:
        raise UserError(f"split: by must be one of {', '.join(WAYS)}, not {by!r}{nearest(by, WAYS)}")
    if len(groups) != len(names) or (areas is not None and len(areas) != len(names)):
        raise UserError(f"split: {len(names)} names need as many groups and areas")
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise UserError(f"split: the name {twice!r} occurs more than once")
    members: dict[str, list[int]] = {}
    for i, (name, group) in enumerate(zip(names, groups, strict=True)):
        members.setdefault(name if by == "image" else group, []).append(i)
    size = {key: sum(areas[i] for i in found) / len(found) for key, found in members.items()} if areas else {}
    strata = _strata(size)
    units = [_Unit(key, tuple(sorted(names[i] for i in found)), strata.get(key, 0)) for key, found in members.items()]
    return sorted(units, key=lambda u: _rank(u.key, seed))


def _strata(size: Mapping[str, float], bins: int = 4) -> dict[str, int]:
    """0 for empty masks, 1 … `bins` for quarters of the rest by area."""
    filled = sorted((area, key) for key, area in size.items() if area > 0)
    return dict.fromkeys(size, 0) | {key: 1 + rank * bins // len(filled) for rank, (_, key) in enumerate(filled)}


def _rank(key: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogatepass")).digest()


def _take(units: list[_Unit], target: int, *, keep: int) -> tuple[list[_Unit], list[_Unit]]:
    """About `target` pairs in whole units, and the rest, which keeps at least `keep` units."""
    taken: list[_Unit] = []
    for stratum, quota in _quotas(units, target).items():
        have = 0
        for unit in (u for u in units if u.stratum == stratum):
            # Take it where that brings the count nearer to the quota than leaving it.
            if have + len(unit.members) / 2 <= quota and len(taken) < len(units) - keep and have < quota:
                taken.append(unit)
                have += len(unit.members)
    if not taken:
        taken = [min(units, key=lambda u: len(u.members))]
    gone = {unit.key for unit in taken}
    return taken, [unit for unit in units if unit.key not in gone]


def _quotas(units: list[_Unit], target: int) -> dict[int, int]:
    """`target` pairs shared out over the strata by their size: largest remainder, so that the sum is exact."""
    counts: dict[int, int] = {}
    for unit in units:
        counts[unit.stratum] = counts.get(unit.stratum, 0) + len(unit.members)
    total = sum(counts.values())
    exact = {stratum: target * count / total for stratum, count in counts.items()}
    quotas = {stratum: math.floor(share) for stratum, share in exact.items()}
    short = target - sum(quotas.values())
    for stratum in sorted(exact, key=lambda s: (quotas[s] - exact[s], s))[:short]:
        quotas[stratum] += 1
    return dict(sorted(quotas.items()))
