r"""Is a generated image a copy of one that the generator was trained on?

Candidates are nearest neighbours in two spaces, in all eight orientations, and upright also zoomed or slightly rotated;
pixels then decide.

- *layout*: the low cosine frequencies of the local-contrast picture (`data.audit.fingerprints`): where the folds,
  vessels and edges are, whatever the brightness;
- *look*: a colour thumbnail at two scales and histograms of gradient directions in cells: what the picture is like.

The *likeness* of two images is the correlation of their 96×96 local-contrast pictures at the best orientation, shift
(6 % of the side), zoom (±10 %) and small rotation (±10°): the number by which `laworder data audit` finds duplicates,
which knows neither zoom nor rotation. The likeness of an image to a set is that to its likest member.

What is suspicious is decided by the training images themselves: each is taken as if it had been generated, and compared
with those of all other groups (patients, videos). Their likenesses L, as z = artanh L, are maxima of many, whose upper
tail falls off exponentially: above the value u that a share p of them passes, P(z > t) = p exp(−(t − u) / σ), where σ
is the mean excess of that share. The threshold is the t that one image in `1 / RATE` passes by chance, with σ raised by
its standard error, so that few training images make it careful. It never lies above the audit's bar for a copy.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch types from_numpy, tolist and unique in part only)

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int8, Int64, Shaped, UInt8
from torch import Tensor
from torch.nn import functional as F

from laworder.data.audit.duplicates import COPY, ORIENTATIONS, correlations, turn
from laworder.data.audit.fingerprints import SIDE, frequencies
from laworder.errors import UserError

RATE = 1e-3
"""Chance of a false alarm an image that the threshold is set for."""
TAIL, FEWEST = 0.1, 10
"""Share of the likenesses that the tail is fitted to, and the fewest of them."""
MOVES = ((1.0, 0.0), (0.9, 0.0), (1.1, 0.0), (1.0, -5.0), (1.0, 5.0), (1.0, -10.0), (1.0, 10.0))
"""Zoom and degrees at which pictures are compared; the first is as they are."""
LOOK = 64
"""Side of the colour thumbnails from which the look is computed."""
_UPRIGHT, _TURNED, _MOVED = 8, 2, 2
_TRIED = 4
_ROWS = 512
_BINS, _CELLS = 8, 8


@dataclass(frozen=True)
class Pictures:
    """A set of images as they are compared.

    contrast: local-contrast pictures, all zero where an image has no features
    colour:   RGB thumbnails
    extra:    embeddings by a network, where there is one
    """

    contrast: Int8[np.ndarray, "n side side"]
    colour: UInt8[Tensor, "n 3 look look"]
    extra: Float32[Tensor, "n d"] | None = None

    def __len__(self) -> int:
        return len(self.contrast)


@dataclass(frozen=True)
class Match:
    """The likest member of a set, or none (index −1) where an image has no features.

    orientation, zoom, angle: what was done to the image, in this order, before it looked most like that member
    """

    index: int
    likeness: float
    orientation: str = "upright"
    zoom: float = 1.0
    angle: float = 0.0


NOBODY = Match(-1, 0.0)


def layout(contrast: Int8[np.ndarray, "n side side"], orientation: str = "upright") -> Float32[Tensor, "n d"]:
    """The low frequencies of each picture in an orientation, at length 1."""
    turned = turn(torch.from_numpy(contrast), orientation).numpy()
    return torch.from_numpy(frequencies(turned)).flatten(1)


def look(colour: UInt8[Tensor, "n 3 side side"], orientation: str = "upright") -> Float32[Tensor, "n d"]:
    """Colour at 4×4 and 12×12, and gradient directions in 8×8 cells, each part and then the whole at length 1."""
    x = turn(colour, orientation).float() / 255
    x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True).clamp(min=0.02)
    parts = [F.normalize(F.adaptive_avg_pool2d(x, side).flatten(1), dim=1) for side in (4, 12)]
    return F.normalize(torch.cat([*parts, F.normalize(_directions(x.mean(1)), dim=1)], 1), dim=1)


def _directions(gray: Float32[Tensor, "n h w"]) -> Float32[Tensor, "n d"]:
    """Gradient length by direction (without sign) in each cell; roots, so that a few strong edges do not rule."""
    padded = F.pad(gray[:, None], (1, 1, 1, 1), mode="replicate")
    across = padded[:, 0, 1:-1, 2:] - padded[:, 0, 1:-1, :-2]
    down = padded[:, 0, 2:, 1:-1] - padded[:, 0, :-2, 1:-1]
    direction = (torch.atan2(down, across) / math.pi % 1 * _BINS).long() % _BINS
    length = (across**2 + down**2).sqrt()
    planes = torch.zeros(len(gray), _BINS, *gray.shape[1:]).scatter_(1, direction[:, None], length[:, None])
    return F.adaptive_avg_pool2d(planes, _CELLS).sqrt().flatten(1)


def nearest(
    of: Pictures, among: Pictures, *, forbidden: Shaped[Tensor, "n m"] | None = None
) -> tuple[dict[str, Float32[Tensor, " n"]], Int64[Tensor, "p 4"]]:
    """Distance to the nearest neighbour in each space, and the candidate pairs (of, among, orientation, move), the last
    two by their number in `ORIENTATIONS` and `MOVES`.

    forbidden: pairs that are not to be compared
    """
    spaces: dict[str, Tensor] = {}
    found: list[Tensor] = []
    fixed = {"layout": layout(among.contrast), "look": look(among.colour)}
    for number, name in enumerate(ORIENTATIONS):
        turned = {"layout": layout(of.contrast, name), "look": look(of.colour, name)}
        most = _UPRIGHT if number == 0 else _TURNED
        pairs = [(key, turned[key], fixed[key]) for key in turned]
        if number == 0 and of.extra is not None and among.extra is not None:
            pairs.append(("network", F.normalize(of.extra, dim=1), F.normalize(among.extra, dim=1)))
        for key, a, b in pairs:
            best, rows = _top(a, b, min(most, len(among)), forbidden)
            gap = (2 - 2 * best).clamp(min=0).sqrt()
            spaces[key] = torch.minimum(spaces[key], gap) if key in spaces else gap
            found.append(_numbered(rows, number, 0))
    for number, (zoom, angle) in enumerate(MOVES[1:], 1):
        a = layout(moved_pictures(of.contrast, zoom, angle))
        found.append(_numbered(_top(a, fixed["layout"], min(_MOVED, len(among)), forbidden)[1], 0, number))
    return spaces, torch.cat(found).unique(dim=0)


def _numbered(rows: Int64[Tensor, "p 2"], orientation: int, move: int) -> Int64[Tensor, "p 4"]:
    return torch.cat([rows, torch.tensor([[orientation, move]]).expand(len(rows), -1)], 1)


def _top(
    a: Tensor, b: Tensor, most: int, forbidden: Tensor | None
) -> tuple[Float32[Tensor, " n"], Int64[Tensor, "p 2"]]:
    """The highest scalar product of each row of `a` with those of `b`, and the `most` best pairs of each."""
    best: list[Tensor] = []
    rows: list[Tensor] = []
    for start in range(0, len(a), _ROWS):
        products = a[start : start + _ROWS] @ b.T
        if forbidden is not None:
            products = products.masked_fill(forbidden[start : start + _ROWS], -2)
        values, where = products.topk(most, dim=1)
        own = torch.arange(start, start + len(products))[:, None].expand_as(where)
        allowed = values > -2
        best.append(values[:, 0])
        rows.append(torch.stack([own[allowed], where[allowed]], 1))
    return torch.cat(best), torch.cat(rows)


def matches(of: Pictures, among: Pictures, candidates: Int64[Tensor, "p 4"]) -> list[Match]:
    """The likest of each image's candidates: each moved as it was found, the best few as they are in all ways."""
    found = [NOBODY] * len(of)
    names = list(ORIENTATIONS)
    usable = torch.from_numpy(of.contrast.any((1, 2)))[candidates[:, 0]]
    usable &= torch.from_numpy(among.contrast.any((1, 2)))[candidates[:, 1]]
    left = candidates[usable]
    upright = left[left[:, 3] == 0]
    best = _best_of_each(upright, _likeness(of.contrast, among.contrast, upright, 1.0, 0.0), _TRIED)
    for number, (zoom, angle) in enumerate(MOVES):
        pairs = upright if number == 0 else torch.cat([best, left[left[:, 3] == number]])
        likeness = _likeness(of.contrast, among.contrast, pairs, zoom, angle)
        for (i, j, k, _), value in zip(pairs.tolist(), likeness.tolist(), strict=True):
            if value > found[i].likeness:
                found[i] = Match(j, value, names[k], zoom, angle)
    return found


def _likeness(
    of: Int8[np.ndarray, "n side side"],
    among: Int8[np.ndarray, "m side side"],
    pairs: Int64[Tensor, "p 4"],
    zoom: float,
    angle: float,
) -> Float32[Tensor, " p"]:
    """Correlation at the best shift, orientation by orientation, the first of each pair turned and then moved."""
    result = torch.zeros(len(pairs))
    for number, name in enumerate(ORIENTATIONS):
        where = (pairs[:, 2] == number).nonzero()[:, 0]
        if len(where) == 0:
            continue
        wanted, row = pairs[where, 0].unique(return_inverse=True)
        turned = turn(torch.from_numpy(of[wanted.numpy()]), name).contiguous().numpy()
        both = np.concatenate([moved_pictures(turned, zoom, angle), among])
        result[where] = correlations(both, torch.stack([row, pairs[where, 1] + len(turned)], 1))
    return result


def _best_of_each(pairs: Int64[Tensor, "p 4"], value: Float32[Tensor, " p"], most: int) -> Int64[Tensor, "q 4"]:
    """The `most` pairs of the highest value of each image."""
    order = value.argsort(descending=True, stable=True)
    order = order[pairs[order, 0].argsort(stable=True)]
    first = pairs[order, 0]
    rank = torch.arange(len(first)) - torch.searchsorted(first, first)
    return pairs[order[rank < most]]


def move_matrix(zoom: float, angle: float) -> list[list[float]]:
    """From places in the moved picture to places in the picture, about its middle; degrees run clockwise."""
    cos, sin = math.cos(math.radians(angle)) / zoom, math.sin(math.radians(angle)) / zoom
    return [[cos, sin], [-sin, cos]]


def moved_pictures(
    contrast: Int8[np.ndarray, "n side side"], zoom: float, angle: float
) -> Int8[np.ndarray, "n side side"]:
    """Each picture enlarged (zoom above 1) and rotated about its middle, with nothing around it."""
    if (zoom, angle) == MOVES[0]:
        return contrast
    matrix = torch.tensor([[[*row, 0.0] for row in move_matrix(zoom, angle)]])
    grid = F.affine_grid(matrix, [1, 1, SIDE, SIDE], False)
    found = np.empty_like(contrast)
    for start in range(0, len(contrast), _ROWS):
        part = torch.from_numpy(contrast[start : start + _ROWS]).float()[:, None]
        moved = F.grid_sample(part, grid.expand(len(part), -1, -1, -1), align_corners=False)
        found[start : start + _ROWS] = moved[:, 0].round().clamp(-127, 127).to(torch.int8).numpy()
    return found


def threshold(likeness: Shaped[Tensor, " n"], *, rate: float = RATE) -> float:
    """The likeness that one image in 1/rate reaches by chance, from those of training images to each other."""
    known = likeness[likeness > 0].double().clamp(max=1 - 1e-9)
    if len(known) < 2:
        raise UserError(f"a threshold needs at least 2 training images that can be compared, not {len(known)}")
    z = torch.atanh(known).sort().values
    tail = min(len(z) - 1, max(FEWEST, round(TAIL * len(z))))
    start = float(z[-tail - 1])
    scale = float(z[-tail:].mean()) - start
    sure = scale * (1 + 1 / math.sqrt(tail))
    return min(COPY, math.tanh(start + sure * max(0.0, math.log(tail / len(z) / rate))))


def share_interval(hits: int, count: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a share: it has a width where no image was hit, too."""
    share = hits / count
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = ((middle + end * reach) / (1 + z * z / count) for end in (-1, 1))
    return max(0.0, low), min(1.0, high)
