"""Images that are the same, or nearly: candidates by fingerprint, then a comparison after alignment.

- *identical*: every decoded pixel is the same.
- *copy*: all but the same picture, encoded, scaled or brightened anew, or taken a moment later: the local-contrast
  pictures correlate by ≥ 0.95 at the best shift of up to 6 % of the side.
- *near*: ≥ 0.72, the neighbouring frame of a video, the neighbouring slice of a scan: another picture of the same
  patient, which in another split is a leak all the same.
- *mirrored*: a copy after a flip or a quarter turn.

Candidates are pairs whose low frequencies correlate by ≥ 0.5, at most `PER_IMAGE` for each image, so that the cost is
one matrix product and not a comparison of all pairs. On the polyp and BRISC images that loses about 1 % of the near
pairs, those that are shifted most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int8, Int64
from torch import Tensor
from tqdm import tqdm

from laworder.data.audit.components import groups_of_links
from laworder.data.audit.fingerprints import Fingerprint, frequencies

COPY, NEAR = 0.95, 0.72
CANDIDATE, CANDIDATE_MIRRORED = 0.5, 0.8
PER_IMAGE, PER_IMAGE_MIRRORED = 24, 4
REACH = 6  # pixels of the 96×96 picture
_ROWS = 1024
_BATCH = 256

# (transposed, upside down, left to right), applied in this order
ORIENTATIONS: dict[str, tuple[bool, bool, bool]] = {
    "upright": (False, False, False),
    "left to right": (False, False, True),
    "upside down": (False, True, False),
    "half turn": (False, True, True),
    "transposed": (True, False, False),
    "quarter turn left": (True, True, False),
    "quarter turn right": (True, False, True),
    "transverse": (True, True, True),
}


@dataclass(frozen=True)
class Twin:
    """Two images, by their number, that are one picture or nearly; `score` is their correlation."""

    a: int
    b: int
    kind: str
    score: float
    orientation: str = "upright"


@dataclass(frozen=True)
class Duplicates:
    """identical: groups of equal images; twins: pairs beyond them, best first; compared: candidates looked at."""

    identical: list[list[int]]
    twins: list[Twin]
    compared: int

    def of_kind(self, kind: str) -> list[Twin]:
        return [twin for twin in self.twins if twin.kind == kind]


def find_duplicates(
    prints: Sequence[Fingerprint | None], *, mirrored: bool = True, progress: bool = False
) -> Duplicates:
    """All duplicates in a list of fingerprints; None and featureless images only ever count as identical."""
    equal: dict[str, list[int]] = {}
    for i, one in enumerate(prints):
        if one is not None:
            equal.setdefault(one.digest, []).append(i)
    # Of equal images the first stands for all: the others would only repeat its pairs.
    usable = [members[0] for members in equal.values() if not _shapeless(prints[members[0]])]
    if len(usable) < 2:
        return Duplicates([m for m in equal.values() if len(m) > 1], [], 0)
    pictures = np.stack([_picture(prints[i]) for i in usable])
    spectrum = torch.from_numpy(frequencies(pictures))
    names = list(ORIENTATIONS) if mirrored else ["upright"]
    twins: dict[tuple[int, int], Twin] = {}
    compared = 0
    for name in tqdm(names, desc="comparing", disable=None if progress else True, leave=False):
        straight = name == "upright"
        pairs = candidates(spectrum, name)
        compared += len(pairs)
        scores = correlations(pictures, pairs, name)
        for (a, b), score in zip(pairs.tolist(), scores.tolist(), strict=True):
            # b is a's quarter turn to the left where a is b's to the right: one pair, found from both ends.
            if score >= (NEAR if straight else COPY) and (a, b) not in twins and (b, a) not in twins:
                kind = ("copy" if score >= COPY else "near") if straight else "mirrored"
                twins[a, b] = Twin(usable[a], usable[b], kind, round(score, 4), name)
    ordered = sorted(twins.values(), key=lambda t: (-t.score, t.a, t.b))
    return Duplicates([m for m in equal.values() if len(m) > 1], ordered, compared)


def groups(found: Duplicates, count: int, kinds: Sequence[str]) -> list[list[int]]:
    """Images held together by pairs of these kinds; "identical" stands for the groups of equal images."""
    links = [(t.a, t.b) for t in found.twins if t.kind in kinds]
    if "identical" in kinds:
        links += [(members[0], other) for members in found.identical for other in members[1:]]
    return groups_of_links(count, links)


def candidates(spectrum: Float32[Tensor, "n k k"], orientation: str) -> Int64[Tensor, "m 2"]:
    """Pairs (a < b) whose low frequencies correlate, the first one turned by `orientation`."""
    straight = orientation == "upright"
    threshold, most = (CANDIDATE, PER_IMAGE) if straight else (CANDIDATE_MIRRORED, PER_IMAGE_MIRRORED)
    turned, everything = _turned_spectrum(spectrum, orientation).flatten(1), spectrum.flatten(1)
    found: list[Tensor] = []
    for start in range(0, len(everything), _ROWS):
        rows = torch.arange(start, min(start + _ROWS, len(everything)))
        similar = turned[rows] @ everything.T
        similar[torch.arange(len(rows)), rows] = -1
        best = similar.topk(min(most, len(everything)), dim=1)
        near = best.values >= threshold
        found.append(torch.stack([rows[:, None].expand_as(near)[near], best.indices[near]], dim=1))
    pairs = torch.cat(found)
    # A quarter turn of a is b's turn the other way: only then does the order of the two matter.
    if orientation not in ("quarter turn left", "quarter turn right"):
        pairs = pairs.sort(dim=1).values
    return pairs.unique(dim=0)


def correlations(
    pictures: Int8[np.ndarray, "n side side"], pairs: Int64[Tensor, "m 2"], orientation: str = "upright"
) -> Float32[Tensor, " m"]:
    """The highest correlation of each pair over shifts of up to `REACH` pixels, the first one turned."""
    scores: list[Tensor] = [torch.empty(0)]
    for part in pairs.split(_BATCH) if len(pairs) else ():
        a, b = (torch.from_numpy(pictures[part[:, k].numpy()]).float() for k in (0, 1))
        a = torch.fft.rfft2(turn(a, orientation))
        b = torch.fft.rfft2(b)
        surface = torch.fft.irfft2(a * b.conj(), s=pictures.shape[1:])
        window = surface.roll((REACH, REACH), dims=(1, 2))[:, : 2 * REACH + 1, : 2 * REACH + 1]
        lengths = [torch.from_numpy(pictures[part[:, k].numpy()]).float().flatten(1).norm(dim=1) for k in (0, 1)]
        scores.append(window.amax(dim=(1, 2)) / (lengths[0] * lengths[1]).clamp(min=1e-6))
    return torch.cat(scores)


def turn(picture: Tensor, orientation: str) -> Tensor:
    """A picture (…×h×w) in another orientation."""
    transposed, upside, left = ORIENTATIONS[orientation]
    picture = picture.transpose(-1, -2) if transposed else picture
    axes = [axis for axis, on in ((-2, upside), (-1, left)) if on]
    return picture.flip(axes) if axes else picture


def _turned_spectrum(spectrum: Float32[Tensor, "n k k"], orientation: str) -> Float32[Tensor, "n k k"]:
    """What `turn` does to a picture, done to its cosine frequencies: odd ones change sign under a flip."""
    transposed, upside, left = ORIENTATIONS[orientation]
    spectrum = spectrum.transpose(1, 2) if transposed else spectrum
    signs = (-1.0) ** torch.arange(spectrum.shape[1])
    spectrum = spectrum * signs[:, None] if upside else spectrum
    return spectrum * signs if left else spectrum


def _shapeless(one: Fingerprint | None) -> bool:
    return one is None or one.featureless


def _picture(one: Fingerprint | None) -> Int8[np.ndarray, "side side"]:
    assert one is not None, "only images with a fingerprint are compared"
    return one.picture
