"""The figures that data stand behind: what they need, and how they are drawn onto a page and into files."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laworder.data.prepared import PreparedSource
from laworder.diffusion.looks import FOLDER
from laworder.diffusion.report import spaced
from laworder.paper.cells import Cell, cells, sources
from laworder.paper.drawing import divided, drawn, trained
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import Data, Job, Output
from laworder.paper.page import Shown, StudyPage
from laworder.paper.segmentation import COMPARISON
from laworder.paper.setting import DATASETS, Setting
from laworder.paper.spec import Absent, Ask
from laworder.paper.store import result, status
from laworder.paper.synthesis import DOSE, METHODS
from laworder.report import Series, line_chart
from laworder.segmentation.report import size_chart

AUDIT = "audit.html"
STRIPS = 4
PICTURES = 8
Study = tuple[Setting, Resolver]


@dataclass(frozen=True)
class Figure:
    """A figure of the study.

    label: the paper's, or empty where it has none; jobs: what it needs; draw: puts it on the page, False where
    nothing is there yet
    """

    key: str
    title: str
    label: str
    jobs: Callable[[Setting], list[Job]]
    draw: Callable[[StudyPage, Study], bool]


def _done(jobs: Sequence[Job], resolver: Resolver) -> list[Resolved]:
    return [one for one in map(resolver.resolve, jobs) if status(one).state == "done"]


def _present(found: Sequence[Job | Absent]) -> list[Job]:
    return [job for job in found if isinstance(job, Job)]


def _audits(setting: Setting) -> list[Job]:
    jobs: list[Job] = []
    for dataset in DATASETS:
        place = setting.folder(dataset)
        data = divided(setting, dataset) if setting.drawn else None
        folder = Output(data) if isinstance(data, Job) else Data(place) if place is not None else None
        if folder is not None:
            jobs.append(Job("data audit", f"audit/{setting.scale}/{dataset}", {"folder": folder, "out": AUDIT}))
    return jobs


def _draw_audits(page: StudyPage, study: Study) -> bool:
    found = _done(_audits(study[0]), study[1])
    for one in found:
        page.text(f"{one.job.label}:")
        page.findings(result(one, Path(AUDIT).with_suffix(".json").name)["findings"])
    return bool(found)


def _samples(setting: Setting) -> list[Job]:
    seed = setting.seeds[0]
    return _present([drawn(setting, row.key, dataset, seed) for dataset in DATASETS for row in METHODS])


def pictures(one: Resolved, count: int = PICTURES) -> list[Shown]:
    """The first images of a drawn set, in the order of their names."""
    source = PreparedSource(one.out)
    order = sorted(range(len(source)), key=lambda index: source.names[index])[:count]
    shown: list[Shown] = []
    for pair in map(source.read, order):
        image = np.repeat(pair.image, 3, axis=2) if pair.image.shape[2] == 1 else pair.image
        shown.append(Shown(pair.name, np.ascontiguousarray(image), pair.mask > 0))
    return shown


def _draw_samples(page: StudyPage, study: Study) -> bool:
    found = _done(_samples(study[0]), study[1])
    if found:
        page.overlays(
            {one.job.label.removeprefix("synth sample/"): pictures(one) for one in found},
            caption="Synthetic images under the masks that they were drawn for; the slider shows and hides the masks. "
            "The same masks in every row.",
        )
    return bool(found)


def _learners(setting: Setting) -> list[Job]:
    seed = setting.seeds[0]
    return _present([trained(setting, row, dataset, seed) for dataset in DATASETS for row in ("law", "law_plus")])


def strips(one: Resolved) -> list[Path]:
    """δ at a few moments of a training, first to last."""
    return spaced(sorted((one.out / FOLDER).glob("delta-*.png")), STRIPS)


def _draw_deltas(page: StudyPage, study: Study) -> bool:
    shown = False
    for one in _done(_learners(study[0]), study[1]):
        for path in strips(one):
            uri = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
            step = int(path.stem.rpartition("-")[2])
            text = f"{one.job.label}, step {step}"
            page.sheet([[(uri, text)]], caption=f"{text}: the masks, then δ at 10, 40, 70 and 95 % of the diffusion.")
            shown = True
    return shown


def _evaluations(setting: Setting) -> dict[str, list[Job]]:
    column = next(column for column in COMPARISON.columns if column.key == "polyps-dice")
    found: dict[str, list[Job]] = {}
    for row in COMPARISON.rows:
        asked = sources(COMPARISON, setting, row, column).values()
        found[row.key] = [source.job for source in asked if isinstance(source, Ask)]
    return found


def by_size(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Dice by lesion size over several seeds: each bin's mean over all their images."""
    bins: dict[tuple[float, float], list[tuple[int, float]]] = {}
    for found in results:
        for one in found["model"]["dice_by_lesion_size"]:
            bins.setdefault((one["low"], one["high"]), []).append((one["images"], one["mean"]))
    rows = []
    for (low, high), parts in sorted(bins.items()):
        images = sum(count for count, _ in parts)
        if images:
            mean = sum(count * value for count, value in parts if count) / images
            rows.append({"low": low, "high": high, "images": images, "mean": mean})
    return {"dice_by_lesion_size": rows}


def _draw_sizes(page: StudyPage, study: Study) -> bool:
    found: dict[str, Any] = {}
    for label, jobs in _evaluations(study[0]).items():
        done = [result(one, "evaluation.json") for one in _done(jobs, study[1])]
        if done:
            found[label] = by_size(done)
    if found:
        size_chart(page, found)
    return bool(found)


def _draw_dose(page: StudyPage, study: Study) -> bool:
    rows = [row[0] for row in cells(DOSE, *study)]
    found = [cell for cell in rows if cell.mean is not None]
    if not found:
        return False
    means = [cell.mean or 0.0 for cell in found]
    spread = [cell.std or 0.0 for cell in found]
    bands = [(mean - std, mean + std) for mean, std in zip(means, spread, strict=True)]
    lines = [Series("ours", [_dose(cell) for cell in found], means, bands if any(spread) else None)]
    if not study[0].drawn:
        known = [(cell, cell.paper) for cell in rows if cell.paper is not None]
        lines.append(Series("paper", [_dose(cell) for cell, _ in known], [paper.mean for _, paper in known]))
    page.figure(
        line_chart(lines, x_label="synthetic images (the paper's count)", y_label="mDice, %", title="Dose curve"),
        caption="Dice on held-out real images against the number of synthetic ones; the band is ± one standard "
        "deviation over seeds.",
    )
    return True


def _dose(cell: Cell) -> float:
    return float(cell.row.key) if cell.row.key.isdigit() else 0.0


def _flat(jobs: Mapping[str, list[Job]]) -> list[Job]:
    return [job for listed in jobs.values() for job in listed]


def _dose_jobs(setting: Setting) -> list[Job]:
    asked = [s for row in DOSE.rows for s in sources(DOSE, setting, row, DOSE.columns[0]).values()]
    return [source.job for source in asked if isinstance(source, Ask)]


FIGURES: dict[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure("audit", "What the audit of the data says", "", _audits, _draw_audits),
        Figure("samples", "Synthetic images and their masks", "fig:diffusion_qual", _samples, _draw_samples),
        Figure("deltas", "δ over training", "fig:attention_vis", _learners, _draw_deltas),
        Figure("sizes", "Dice against lesion size", "", lambda s: _flat(_evaluations(s)), _draw_sizes),
        Figure("doses", "Dose curve", "", _dose_jobs, _draw_dose),
    )
}
