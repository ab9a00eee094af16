r"""Is a generated image a copy of one that the generator was trained on?

Candidates are nearest neighbours in two spaces, in all eight orientations, and upright also zoomed or slightly rotated;
pixels then decide.

- *layout*: the low cosine frequencies of the local-contrast picture (`data.audit.fingerprints`): where the folds,
  vessels and edges are, whatever the brightness;
- *look*: a colour thumbnail at two scales and histograms of gradient directions in cells: what the picture is like.

The *likeness* of two images is the correlation of their 96×96 local-contrast pictures at the best orientation, shift
(6 % of the side), zoom (±10 %) and small rotation (±10°), over what both show: the number by which `laworder data
audit` finds duplicates, which knows neither zoom nor rotation. Moves are tried on a coarse grid, then in finer steps
about the best of them: a zoom that is off by 5 % halves the correlation of fine structure. The likeness of an image to
a set is that to its likest member.

What is suspicious is decided by the training images themselves: each is taken as if it had been generated, and compared
with those of all other groups (patients, videos). Their likenesses L, as z = artanh L, are maxima of many, whose upper
tail falls off exponentially: above the value u that a share p of them passes, P(z > t) = p exp(−(t − u) / σ), where σ
is the mean excess of that share. The threshold is the t that one image in `1 / RATE` passes by chance, with σ raised by
its standard error, so that few training images make it careful. It never lies above the audit's bar for a copy.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (torch types from_numpy, tolist and unique in part only)

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int8, Int64, Shaped, UInt8
from torch import Tensor
from torch.nn import functional as F

from laworder.data.audit.duplicates import COPY, ORIENTATIONS, correlations, turn
from laworder.data.audit.fingerprints import SIDE, frequencies
from laworder.errors import UserError

RATE = 1e-3
"""Chance of a false alarm an image that the threshold is set for."""
TAIL, FEWEST = 0.1, 10
"""Share of the likenesses that the tail is fitted to, and the fewest of them."""
_ZOOMS, _ANGLES = (0.9, 0.95, 1.05, 1.1), (-10.0, -5.0, 5.0, 10.0)
MOVES = ((1.0, 0.0), *((zoom, 0.0) for zoom in _ZOOMS), *((1.0, angle) for angle in _ANGLES))
"""Zoom and degrees at which pictures are compared; the first is as they are."""
STEPS = ((1.025, 2.5), (1.0125, 1.25))
"""Factors of zoom and degrees either way that are tried about the best moves, one after the other."""
LOOK = 64
"""Side of the colour thumbnails from which the look is computed."""
_UPRIGHT, _TURNED, _MOVED = 8, 2, 2
_TRIED, _REFINED = 4, 2
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


@dataclass(frozen=True)
class _Tries:
    """Pairs (of, among, number of the orientation) in the moves in which they were compared."""

    pairs: Int64[Tensor, "p 3"]
    zoom: Float32[Tensor, " p"]
    angle: Float32[Tensor, " p"]
    likeness: Float32[Tensor, " p"]

    def best(self, most: int) -> _Tries:
        """Of each image the `most` likest pairs, each in its best move."""
        order = self.likeness.argsort(descending=True, stable=True)
        _, pair = self.pairs[order].unique(dim=0, return_inverse=True)
        by_pair = pair.argsort(stable=True)
        order = order[by_pair[_first_of_each(pair[by_pair])].sort().values]
        order = order[self.pairs[order, 0].argsort(stable=True)]
        image = self.pairs[order, 0]
        rank = torch.arange(len(image)) - torch.searchsorted(image, image)
        return self.taken(order[rank < most])

    def taken(self, rows: Int64[Tensor, " q"]) -> _Tries:
        return _Tries(self.pairs[rows], self.zoom[rows], self.angle[rows], self.likeness[rows])

    def __add__(self, other: _Tries) -> _Tries:
        return _Tries(*(torch.cat([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


def _first_of_each(ordered: Int64[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Where a new value begins."""
    return torch.cat([torch.ones(min(1, len(ordered)), dtype=torch.bool), ordered[1:] != ordered[:-1]])


def matches(of: Pictures, among: Pictures, candidates: Int64[Tensor, "p 4"]) -> list[Match]:
    """The likest of each image's candidates: each moved as it was found, the best few as they are in all ways."""
    usable = torch.from_numpy(of.contrast.any((1, 2)))[candidates[:, 0]]
    usable &= torch.from_numpy(among.contrast.any((1, 2)))[candidates[:, 1]]
    left = candidates[usable]

    def tried(pairs: Tensor, zoom: Tensor | float, angle: Tensor | float) -> _Tries:
        zoom, angle = (torch.as_tensor(x, dtype=torch.float32).expand(len(pairs)) for x in (zoom, angle))
        return _Tries(pairs, zoom, angle, _likeness(of.contrast, among.contrast, pairs, zoom, angle))

    found = tried(left[left[:, 3] == 0, :3], *MOVES[0])
    best = found.best(_TRIED).pairs
    for number, (zoom, angle) in enumerate(MOVES[1:], 1):
        found += tried(torch.cat([best, left[left[:, 3] == number, :3]]), zoom, angle)
    for factor, degrees in STEPS:
        near = found.best(_REFINED)
        for out, turned in itertools.product((-1, 0, 1), repeat=2):
            if out or turned:
                found += tried(near.pairs, near.zoom * factor**out, near.angle + degrees * turned)
    result, names = [NOBODY] * len(of), list(ORIENTATIONS)
    likest = found.best(1)
    columns = (likest.likeness, likest.zoom, likest.angle)
    for (i, j, k), *numbers in zip(likest.pairs.tolist(), *(x.tolist() for x in columns), strict=True):
        if numbers[0] > NOBODY.likeness:
            result[i] = Match(j, numbers[0], names[k], numbers[1], numbers[2])
    return result


def _likeness(
    of: Int8[np.ndarray, "n side side"],
    among: Int8[np.ndarray, "m side side"],
    pairs: Int64[Tensor, "p 3"],
    zoom: Float32[Tensor, " p"],
    angle: Float32[Tensor, " p"],
) -> Float32[Tensor, " p"]:
    """Correlation at the best shift, the first of each pair turned and then moved, over what it shows then."""
    result = torch.zeros(len(pairs))
    for start in range(0, len(pairs), _ROWS):
        rows = slice(start, start + _ROWS)
        turned = torch.from_numpy(of[pairs[rows, 0].numpy()])
        for number, name in enumerate(ORIENTATIONS):
            where = pairs[rows, 2] == number
            if number and bool(where.any()):
                turned[where] = turn(turned[where], name)
        moved, shown = _moved(turned, zoom[rows], angle[rows])
        both = torch.cat([moved, torch.from_numpy(among[pairs[rows, 1].numpy()]) * shown]).numpy()
        own = torch.arange(len(moved))
        result[rows] = correlations(both, torch.stack([own, own + len(own)], 1))
    return result


def move_matrix(zoom: float, angle: float) -> list[list[float]]:
    """From places in the moved picture to places in the picture, about its middle; degrees run clockwise."""
    cos, sin = math.cos(math.radians(angle)) / zoom, math.sin(math.radians(angle)) / zoom
    return [[cos, sin], [-sin, cos]]


def moved_pictures(
    contrast: Int8[np.ndarray, "n side side"], zoom: float, angle: float
) -> Int8[np.ndarray, "n side side"]:
    """Each picture enlarged (zoom above 1) and rotated about its middle, with nothing around it."""
    found = np.empty_like(contrast)
    for start in range(0, len(contrast), _ROWS):
        part = torch.from_numpy(contrast[start : start + _ROWS])
        moves = (torch.full((len(part),), x) for x in (zoom, angle))
        found[start : start + _ROWS] = _moved(part, *moves)[0].numpy()
    return found


def _moved(
    pictures: Int8[Tensor, "n side side"], zoom: Float32[Tensor, " n"], angle: Float32[Tensor, " n"]
) -> tuple[Int8[Tensor, "n side side"], Bool[Tensor, "n side side"]]:
    """Each picture in a move of its own, and where it is then: around it is nothing."""
    if bool((zoom == 1).all()) and bool((angle == 0).all()):
        return pictures, torch.ones_like(pictures, dtype=torch.bool)
    moves = [[[*row, 0.0] for row in move_matrix(*move)] for move in zip(zoom.tolist(), angle.tolist(), strict=True)]
    grid = F.affine_grid(torch.tensor(moves), [len(moves), 1, SIDE, SIDE], False)
    moved = F.grid_sample(pictures.float()[:, None], grid, align_corners=False)[:, 0]
    return moved.round().clamp(-127, 127).to(torch.int8), (grid.abs() <= 1).all(-1)


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
