"""The audit itself: `audit({"train": source, "test": source}) -> Audit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from laworder.data.audit.alignment import Alignment, align
from laworder.data.audit.autoencoder import Reconstruct
from laworder.data.audit.duplicates import Duplicates, find_duplicates
from laworder.data.audit.findings import Finding, find_all
from laworder.data.audit.leaks import Conflict, conflicts
from laworder.data.audit.look import Look, look_all
from laworder.data.audit.roundtrip import Fading, fading
from laworder.data.audit.survival import Grid, SizeBin, by_size, grids
from laworder.data.audit.weights import W_MAX, WeightSummary, summarise
from laworder.data.pairs import Source
from laworder.errors import UserError

SIZES, FACTOR = (256, 384), 8
VAE_IMAGES = 60
_RESIZES = ("nearest", "any")


@dataclass(frozen=True)
class SplitAudit:
    """What was found in one split. `looks` is in the source's order, without the pairs that cannot be read."""

    name: str
    looks: list[Look]
    problems: list[str]
    alignment: Alignment | None
    survival: list[SizeBin]
    weights: list[WeightSummary]
    fading: Fading | None


@dataclass(frozen=True)
class Audit:
    """Everything that was found; see `tables` for it as text, `page` for it with pictures.

    looks: all pairs of all splits; `duplicates` and `conflicts` count in them
    """

    splits: list[SplitAudit]
    looks: list[Look]
    duplicates: Duplicates
    conflicts: list[Conflict]
    grids: tuple[Grid, ...]
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


def audit(
    sources: Mapping[str, Source],
    *,
    sizes: Sequence[int] = SIZES,
    factor: int = FACTOR,
    w_max: float = W_MAX,
    mirrored: bool = True,
    problems: Mapping[str, Sequence[str]] | None = None,
    vae: Reconstruct | None = None,
    vae_images: int = VAE_IMAGES,
    seed: int = 0,
    workers: int | None = None,
    progress: bool = True,
) -> Audit:
    """Look for what ruins studies.

    sources: the splits, by name; an image without channels is a mask alone, and then only masks are looked at
    sizes: sides to which training will resize, in pixels; the latents' grids are these over `factor`
    w_max: LAW's upper clamp
    mirrored: also look for copies that were flipped or turned
    problems: what is already known to be wrong with a split's files, line by line
    vae: an autoencoder, images in [−1, 1] to images; `vae_images` of each split go through it, at the largest size
    """
    if not sources:
        raise UserError("audit: there is no split to look at")
    if not sizes or min(sizes) < 1 or factor < 1:
        raise UserError(f"audit: sizes and factor must be at least 1, not {tuple(sizes)} and {factor}")
    wanted = grids(sorted(set(sizes)), factor)
    splits: list[SplitAudit] = []
    for name, source in sources.items():
        looks, unread = look_all(name, source, wanted, workers=workers, progress=progress, seed=seed)
        wrong = [*(problems or {}).get(name, ()), *unread]
        shown = None if vae is None else _through(source, looks, vae, max(sizes), vae_images, seed, progress)
        splits.append(_summary(name, looks, wrong, wanted, w_max, shown))
    looks = [one for split in splits for one in split.looks]
    found = find_duplicates([one.fingerprint for one in looks], mirrored=mirrored, progress=progress)
    result = Audit(splits, looks, found, conflicts(looks, found, sources), wanted)
    return replace(result, findings=find_all(result))


def _summary(
    name: str, looks: list[Look], problems: list[str], wanted: Sequence[Grid], w_max: float, shown: Fading | None
) -> SplitAudit:
    thumbs = [one.thumb for one in looks if one.thumb is not None]
    empty = np.array([one.mask.empty for one in looks])
    weights = [
        summarise(np.array([one.fates.cells[g, k] for one in looks]), empty, grid.side, resize, w_max=w_max)
        for g, grid in enumerate(wanted)
        if looks and grid.side != grid.size
        for k, resize in enumerate(_RESIZES)
    ]
    survival = by_size([one.fates for one in looks])
    return SplitAudit(name, looks, problems, align(thumbs) if thumbs else None, survival, weights, shown)


def _through(
    source: Source, looks: Sequence[Look], vae: Reconstruct, size: int, count: int, seed: int, progress: bool
) -> Fading | None:
    """A sample of the pairs with an image and a lesion, through the autoencoder."""
    usable = [one.index for one in looks if one.fingerprint is not None and one.mask.lesions]
    if not usable:
        return None
    chosen = np.random.default_rng(seed).permutation(usable)[:count]
    return fading(source, sorted(chosen.tolist()), vae, size=size, progress=progress)
