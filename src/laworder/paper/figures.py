"""The figures that data stand behind, by name: what they need, and how they are drawn onto a page and into files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laworder.paper.curves import doses, draw_doses, draw_sizes, sizes
from laworder.paper.drawing import divided
from laworder.paper.identity import Resolver
from laworder.paper.jobs import Data, Job, Output
from laworder.paper.page import StudyPage
from laworder.paper.setting import DATASETS, Setting
from laworder.paper.sheets import SEGMENTER, cases, draw_cases, draw_deltas, draw_samples, learners, samples
from laworder.paper.store import done, result

AUDIT = "audit.html"


@dataclass(frozen=True)
class Figure:
    """A figure of the study.

    labels: the paper's figures that it makes, none where it has no such; jobs: what it needs; draw: puts it on the
    page, False where nothing is there yet
    """

    key: str
    title: str
    labels: tuple[str, ...]
    jobs: Callable[[Setting], list[Job]]
    draw: Callable[[StudyPage, Setting, Resolver], bool]


def _audits(setting: Setting) -> list[Job]:
    jobs: list[Job] = []
    for dataset in DATASETS:
        place = setting.folder(dataset)
        data = divided(setting, dataset) if setting.drawn else None
        folder = Output(data) if isinstance(data, Job) else Data(place) if place is not None else None
        if folder is not None:
            jobs.append(Job("data audit", f"audit/{setting.scale}/{dataset}", {"folder": folder, "out": AUDIT}))
    return jobs


def _draw_audits(page: StudyPage, setting: Setting, resolver: Resolver) -> bool:
    found = done(_audits(setting), resolver)
    for one in found:
        page.text(f"{setting.called(one.job.label.rpartition('/')[2])}:")
        page.findings(result(one, Path(AUDIT).with_suffix(".json").name)["findings"])
    return bool(found)


_SAMPLES = ("fig:diffusion_qual", "fig:kits_brisc_qual")
_CASES = f"What {SEGMENTER.label} finds: best, median and worst"
FIGURES: dict[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure("audit", "What the audit of the data says", (), _audits, _draw_audits),
        Figure("samples", "Synthetic images and their masks", _SAMPLES, samples, draw_samples),
        Figure("deltas", "δ over training", ("fig:attention_vis",), learners, draw_deltas),
        Figure("cases", _CASES, ("fig:segmentation_qual",), cases, draw_cases),
        Figure("sizes", "Dice against lesion size", (), sizes, draw_sizes),
        Figure("doses", "Dose curve", (), doses, draw_doses),
    )
}
