"""Did the generator copy its training images? Nearest training image of every generated one, by pixels after alignment.

The measure and its threshold are those of `laworder.metrics.copying`; here sources are read, the training images are
compared with each other first, and the most suspicious pairs are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from PIL import Image
from torch import Tensor

from laworder.data.audit.duplicates import COPY, find_duplicates, groups, turn
from laworder.data.audit.fingerprints import SIDE, Fingerprint, fingerprint
from laworder.data.pairs import Source, resize_pair
from laworder.data.parallel import over_cores
from laworder.errors import UserError
from laworder.evaluation.context import Context
from laworder.evaluation.section import Row, Section, not_measured
from laworder.metrics.copying import (
    LOOK,
    RATE,
    Match,
    Pictures,
    matches,
    move_matrix,
    nearest,
    share_interval,
    threshold,
)
from laworder.report import Page, Series, line_chart, picture_uri

NAME, TITLE = "copying", "Copies of training images"
SHOWN = 10
LEAST = 20
"""Training images of different groups below which no threshold can be set."""
_PICTURE = 224


@dataclass(frozen=True)
class Copying:
    """The likest training image of every generated one, and what is usual among training images.

    found:     one match a generated image
    usual:     likeness of each training image to those of other groups
    gaps:      space → distance to the nearest training image, of generated images and of training images
    threshold: likeness from which a generated image is suspected
    """

    found: list[Match]
    usual: Float32[Tensor, " m"]
    gaps: dict[str, tuple[Float32[Tensor, " n"], Float32[Tensor, " m"]]]
    threshold: float

    @property
    def likeness(self) -> Float32[Tensor, " n"]:
        return torch.tensor([match.likeness for match in self.found])

    @property
    def usual_above(self) -> int:
        """Training images that are as like to one of another patient."""
        return int((self.usual >= self.threshold).sum())

    @property
    def suspected(self) -> list[int]:
        """Positions of suspected copies, the likest first."""
        likeness = self.likeness
        order = likeness.argsort(descending=True, stable=True).tolist()
        return [i for i in order if float(likeness[i]) >= self.threshold]


def measure(context: Context) -> Section:
    """The section of the report."""
    train = context.seen
    if train is None:
        return not_measured(NAME, TITLE, "give --train, the images that the generator was trained on")
    if len(train) < LEAST:
        return not_measured(NAME, TITLE, f"give --train with at least {LEAST} training images, not {len(train)}")
    extra = [None, None]
    if context.encoder is not None:
        sources = (context.generated, train)
        extra = [torch.tensor(np.asarray(context.features.of(source, context.encoder))) for source in sources]
    try:
        result = compare_sources(context.generated, train, extra=(extra[0], extra[1]))
    except TooFewStrangersError as error:
        return not_measured(NAME, TITLE, str(error))
    label = None if context.encoder is None else context.features.extractor(context.encoder).label
    return _section(result, context.generated, train, label)


def compare_sources(
    generated: Source, train: Source, *, extra: tuple[Tensor | None, Tensor | None] = (None, None)
) -> Copying:
    """Every generated image against every training image; the threshold from training images against each other."""
    made, _ = pictures_of(generated, extra[0])
    known, prints = pictures_of(train, extra[1])
    usual, between = _usual(known, kin(list(train.groups), prints))
    gaps, candidates = nearest(made, known)
    found = matches(made, known, candidates)
    return Copying(found, usual, {key: (gap, between[key]) for key, gap in gaps.items()}, _threshold(usual))


class TooFewStrangersError(UserError):
    """Too few training images can be compared with another patient's to say what likeness is usual."""


def _threshold(usual: Float32[Tensor, " m"]) -> float:
    if int((usual > 0).sum()) < LEAST:
        raise TooFewStrangersError(
            f"only {int((usual > 0).sum())} training images have another patient's or video's to be compared "
            f"with; {LEAST} are needed to tell a copy from a usual likeness"
        )
    return threshold(usual)


def _usual(
    known: Pictures, same: Bool[Tensor, "m m"]
) -> tuple[Float32[Tensor, " m"], dict[str, Float32[Tensor, " m"]]]:
    """Training images as if each had been generated: likeness and distances to those that are no kin of it."""
    gaps, candidates = nearest(known, known, forbidden=same)
    return torch.tensor([match.likeness for match in matches(known, known, candidates)]), gaps


def kin(groups_of: list[str], prints: list[Fingerprint]) -> Bool[Tensor, "m m"]:
    """Which training images show one patient: of one group, or chained by pictures that are the same or nearly.

    Without the second, a set whose groups are not known (frames of videos in one folder) would call copies usual.
    """
    count = len(prints)
    names = {name: k for k, name in enumerate(dict.fromkeys(groups_of))}
    group = torch.tensor([names[name] for name in groups_of])
    same = group[:, None] == group[None, :]
    chain = torch.arange(count)
    duplicates = find_duplicates(prints, mirrored=True)
    for members in groups(duplicates, count, ("identical", "copy", "near", "mirrored")):
        chain[members] = members[0]
    return same | (chain[:, None] == chain[None, :])


def pictures_of(source: Source, extra: Tensor | None = None) -> tuple[Pictures, list[Fingerprint]]:
    """What is compared of every image of a source."""
    contrast = np.zeros((len(source), SIDE, SIDE), dtype=np.int8)
    colour = torch.zeros((len(source), 3, LOOK, LOOK), dtype=torch.uint8)
    prints: list[Fingerprint | None] = [None] * len(source)

    def look(index: int) -> None:
        image = source.read(index).image
        one = fingerprint(image)
        prints[index], contrast[index] = one, one.picture
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).convert("RGB")
        small = np.array(picture.resize((LOOK, LOOK), Image.Resampling.BOX))
        colour[index] = torch.from_numpy(small).permute(2, 0, 1)

    over_cores(look, len(source), label="reading pictures")
    return Pictures(contrast, colour, extra), [one for one in prints if one is not None]


def _section(result: Copying, generated: Source, train: Source, encoder: str | None) -> Section:
    suspects, count = result.suspected, len(result.found)
    share = len(suspects) / count
    low, high = share_interval(len(suspects), count)
    chance = f"likeness of {result.threshold:.2f} or more, {_chance(result)}"
    words = [
        f"{len(suspects)} of {count} generated images ({share:.1%}) are suspected copies of one of {len(train)} "
        f"training images: {chance}.",
    ]
    rows = [Row("Suspected copies, share", share, (low, high), f"{len(suspects)} of {count}; {chance}", digits=4)]
    for space, (made, usual) in result.gaps.items():
        ratio = float(made.median()) / max(float(usual.median()), 1e-9)
        beside = "median distance to the nearest training image, over that of training images to other patients'"
        label = encoder if space == "network" else space
        rows.append(Row(f"Distance ratio, {label}", ratio, None, beside, digits=2))
    return Section(NAME, TITLE, _values(result, generated, train), rows, words, _Drawing(result, generated, train))


def _chance(result: Copying) -> str:
    """How usual the threshold is; one at its ceiling is passed more often than the rate that is asked for."""
    if result.threshold < COPY:
        return f"which one image in {round(1 / RATE)} has by chance, going by training images of different patients"
    some = f"{result.usual_above} of {len(result.usual)} training images"
    return f"the bar for a copy, which {some} pass with one of another patient, as far as patients are known"


def _values(result: Copying, generated: Source, train: Source) -> dict[str, Any]:
    likeness, count = result.likeness, len(result.found)
    order = likeness.argsort(descending=True, stable=True).tolist()
    closest = [i for i in order if result.found[i].index >= 0][: max(SHOWN, len(result.suspected))]
    return {
        "measured": True,
        "generated": count,
        "training": len(train),
        "threshold": result.threshold,
        "false_alarm_rate": RATE if result.threshold < COPY else None,
        "training_above_threshold": result.usual_above,
        "suspected": len(result.suspected),
        "share": len(result.suspected) / count,
        "interval_95": list(share_interval(len(result.suspected), count)),
        "without_features": sum(match.index < 0 for match in result.found),
        "likeness": {"generated": _spread(likeness), "training": _spread(result.usual)},
        "distance": {
            space: {"generated": _spread(made), "training": _spread(usual)}
            for space, (made, usual) in result.gaps.items()
        },
        "closest": [
            {
                "generated": generated.names[i],
                "training": train.names[result.found[i].index],
                "likeness": result.found[i].likeness,
                "orientation": result.found[i].orientation,
                "zoom": result.found[i].zoom,
                "angle": result.found[i].angle,
                "suspected": result.found[i].likeness >= result.threshold,
            }
            for i in closest
        ],
    }


def _spread(values: Float32[Tensor, " n"]) -> dict[str, float]:
    points = {"lowest": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "highest": 1.0}
    return {name: float(values.quantile(p)) for name, p in points.items()}


@dataclass(frozen=True)
class _Drawing:
    """Distributions, and the most suspicious pairs as pictures."""

    result: Copying
    generated: Source
    train: Source

    def __call__(self, page: Page) -> None:
        page.text(
            "Likeness is the correlation of two local-contrast pictures of 96×96 pixels at the best of eight "
            "orientations, shifts up to 6 %, zooms up to 10 % and rotations up to 10°, over what both show. Candidates "
            "are the nearest training images by layout and by look. Training images are compared with those of other "
            "patients or videos only; pictures that are the same or nearly count as one patient's."
        )
        sets = (("generated", self.result.likeness), ("training, other patients", self.result.usual))
        page.figure(
            line_chart(
                [_cumulative(name, values) for name, values in sets],
                x_label="likeness to the likest training image",
                y_label="share of images below",
                title="Likeness to training images",
            ),
            caption=f"A generated image is suspected from {self.result.threshold:.2f} on.",
        )
        order = self.result.likeness.argsort(descending=True, stable=True).tolist()
        shown = [i for i in order if self.result.found[i].index >= 0][:SHOWN]
        if shown:
            listed = "; ".join(self._words(i) for i in shown)
            page.sheet(
                [self._row(i) for i in shown],
                names=["generated", "generated, laid over", "training image"],
                caption=f"The most suspicious pairs, likest first: {listed}.",
            )

    def _words(self, i: int) -> str:
        match = self.result.found[i]
        verdict = "suspected" if match.likeness >= self.result.threshold else "not suspected"
        laid = f"{match.orientation}, zoom {match.zoom:.2f}, {match.angle:+.1f}°"
        return (
            f"{self.generated.names[i]} and {self.train.names[match.index]}: {match.likeness:.2f}, {verdict} ({laid})"
        )

    def _row(self, i: int) -> list[tuple[str, str]]:
        match = self.result.found[i]
        made, _ = resize_pair(self.generated.read(i), _PICTURE, 3)
        known, _ = resize_pair(self.train.read(match.index), _PICTURE, 3)
        name, twin = self.generated.names[i], self.train.names[match.index]
        return [
            (picture_uri(made), f"generated image {name}"),
            (picture_uri(laid_over(made, match)), f"generated image {name}, turned as its twin lies"),
            (picture_uri(known), f"training image {twin}"),
        ]


def laid_over(picture: UInt8[np.ndarray, "s s 3"], match: Match) -> UInt8[np.ndarray, "s s 3"]:
    """A generated picture turned, zoomed and rotated as it was when it looked most like its training image."""
    turned = turn(torch.tensor(picture).permute(2, 0, 1), match.orientation).permute(1, 2, 0).contiguous().numpy()
    (a, b), (d, e) = move_matrix(match.zoom, match.angle)
    side, middle = picture.shape[0], picture.shape[0] / 2
    moved = Image.fromarray(turned).transform(
        (side, side),
        Image.Transform.AFFINE,
        (a, b, middle * (1 - a - b), d, e, middle * (1 - d - e)),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(moved)


def _cumulative(name: str, values: Float32[Tensor, " n"]) -> Series:
    shares = torch.linspace(0, 1, 41)
    return Series(name, values.quantile(shares).tolist(), shares.tolist())
