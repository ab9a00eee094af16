"""The figures made of pictures: synthetic images and their masks, δ over training, what a segmenter finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from laworder.data.prepared import PreparedSource
from laworder.diffusion.looks import FOLDER
from laworder.diffusion.report import spaced
from laworder.paper.cases import RESULT, Case, read_cases
from laworder.paper.drawing import drawn, trained
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import Job, Output
from laworder.paper.page import Shown, StudyPage
from laworder.paper.segmentation import tested
from laworder.paper.setting import DATASETS, Setting
from laworder.paper.spec import Absent, Row, present
from laworder.paper.store import done, result
from laworder.paper.synthesis import METHODS
from laworder.report import Sheet, contour
from laworder.report.files import enlarged
from laworder.report.pictures import PREDICTION, TRUTH

STRIPS = 4
PICTURES = 8
ROWS = 4
"""Of the masks on a sheet with a row for each."""
SEGMENTER = Row("order_01", "ORDER{0,1}")
SEGMENTED = ("polyps", "brisc")
Picture = UInt8[np.ndarray, "h w 3"]


def outlined(image: Picture, *masks: tuple[Bool[np.ndarray, "h w"], tuple[int, int, int]]) -> Picture:
    """The image, enlarged where it is small, with the masks' outlines in their colours, wide enough for print."""
    drawn_on = enlarged(image)
    for mask, colour in masks:
        drawn_on = contour(drawn_on, enlarged(mask), colour=colour, width=max(2, max(drawn_on.shape) // 160))
    return drawn_on


def white(mask: Bool[np.ndarray, "h w"]) -> Picture:
    """A mask as a picture: white on black."""
    return np.repeat((mask * 255).astype(np.uint8)[..., None], 3, axis=2)


def samples(setting: Setting) -> list[Job]:
    """The images of every method under the first seed."""
    return present(_sample(setting, dataset, row) for dataset in DATASETS for row in METHODS)


def _sample(setting: Setting, dataset: str, row: Row) -> Job | Absent:
    return drawn(setting, row.key, dataset, setting.seeds[0])


def pictures(one: Resolved, count: int = PICTURES) -> list[Shown]:
    """The first images of a drawn set, in the order of their names."""
    source = PreparedSource(one.out)
    order = sorted(range(len(source)), key=lambda index: source.names[index])[:count]
    shown: list[Shown] = []
    for pair in map(source.read, order):
        image = np.repeat(pair.image, 3, axis=2) if pair.image.shape[2] == 1 else pair.image
        shown.append(Shown(pair.name, np.ascontiguousarray(image), pair.mask > 0))
    return shown


def draw_samples(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    """On the page under a slider; as files, a sheet that compares the methods and a sheet for each."""
    groups: dict[str, list[Shown]] = {}
    for dataset in DATASETS:
        jobs = {row: done(present([_sample(setting, dataset, row)]), resolver) for row in METHODS}
        found = {row: pictures(one) for row, ones in jobs.items() for one in ones}
        groups |= {f"{setting.called(dataset)}: {row.label}": shown for row, shown in found.items()}
        if found:
            page.keep(f"samples-{dataset}", _compared(found))
            for row, shown in found.items():
                page.keep(f"samples-{dataset}-{row.key}", _one_by_one(shown[:ROWS]))
    if groups:
        page.overlays(
            groups,
            caption="Synthetic images under the masks that they were drawn for; the slider shows and hides the masks. "
            "The same masks in every row.",
        )
    return bool(groups)


def _compared(found: dict[Row, list[Shown]]) -> Sheet:
    first = next(iter(found.values()))
    rows = [[white(one.mask) for one in first]]
    rows += [[outlined(one.image, (one.mask, TRUTH)) for one in shown] for shown in found.values()]
    return Sheet(rows, names=["masks", *(row.label for row in found)])


def _one_by_one(shown: Sequence[Shown]) -> Sheet:
    rows = [[white(one.mask), one.image, outlined(one.image, (one.mask, TRUTH))] for one in shown]
    return Sheet(rows, columns=["mask", "generated", "overlay"])


def learners(setting: Setting) -> list[Job]:
    """The trainings of objectives with a δ under the first seed."""
    return present(_learner(setting, dataset, row) for dataset in DATASETS for row in _learning())


def _learning() -> list[Row]:
    return [row for row in METHODS if row.key in ("law", "law_plus")]


def _learner(setting: Setting, dataset: str, row: Row) -> Job | Absent:
    return trained(setting, row.key, dataset, setting.seeds[0])


def strips(one: Resolved) -> list[Path]:
    """δ at a few moments of a training, first to last."""
    return spaced(sorted((one.out / FOLDER).glob("delta-*.png")), STRIPS)


def draw_deltas(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    """A sheet for each training, a column for each moment."""
    shown = False
    for dataset in DATASETS:
        for row in _learning():
            for one in done(present([_learner(setting, dataset, row)]), resolver):
                shown |= _moments(
                    page, f"deltas-{dataset}-{row.key}", f"{setting.called(dataset)}, {row.label}", strips(one)
                )
    return shown


def _moments(page: StudyPage, name: str, what: str, paths: Sequence[Path]) -> bool:
    if not paths:
        return False
    steps = [f"step {int(path.stem.rpartition('-')[2])}" for path in paths]
    tiles: list[Picture] = []
    for path in paths:
        with Image.open(path) as picture:
            tiles.append(enlarged(np.array(picture.convert("RGB"))))
    caption = f"{what}: in each column the masks, below them δ at 10, 40, 70 and 95 % of the diffusion; white is 1."
    page.pictures(name, Sheet([tiles], columns=steps), caption=caption)
    return True


def cases(setting: Setting) -> list[Job]:
    """The best, the median and the worst picture of ORDER's evaluation under the first seed."""
    return present(_case(setting, dataset) for dataset in SEGMENTED)


def _case(setting: Setting, dataset: str) -> Job | Absent:
    judged = tested(setting, SEGMENTER.key, dataset, setting.seeds[0])
    if isinstance(judged, Absent):
        return judged
    same = {key: value for key, value in judged.settings.items() if key in ("model", "data") or "phantom." in key}
    label = judged.label.replace("seg evaluate", "cases", 1)
    return Job("cases", label, {**same, "evaluation": Output(judged)}, gpus=judged.gpus)


def draw_cases(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    """A row for each picture: image, mask, prediction, both outlines."""
    found: list[tuple[str, Case]] = []
    for dataset in SEGMENTED:
        for one in done(present([_case(setting, dataset)]), resolver):
            found += [(setting.called(dataset), case) for case in read_cases(one.out, result(one, RESULT))]
    if not found:
        return False
    rows = [
        [
            case.image,
            white(case.truth),
            white(case.prediction),
            outlined(case.image, (case.truth, TRUTH), (case.prediction, PREDICTION)),
        ]
        for _, case in found
    ]
    names = [f"{dataset}, {case.which} of {case.among}: Dice {case.dice:.3f} ({case.name})" for dataset, case in found]
    page.pictures(
        "cases",
        Sheet(rows, columns=["image", "true mask", "prediction", "both outlines"], names=names),
        caption=f"What {SEGMENTER.label} (seed {setting.seeds[0]}) finds in images that it never saw: those with the "
        "highest, the median and the lowest Dice of all that it was judged on and that have a lesion. The true outline "
        "is green, the predicted one amber.",
    )
    return True
