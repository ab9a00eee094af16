"""`laworder paper figure NAME`: one figure from the runs that are done, as a page, and as files for papers."""

from __future__ import annotations

from dataclasses import dataclass

from laworder.config import option
from laworder.console import say
from laworder.errors import UserError, nearest
from laworder.paper.figures import FIGURES
from laworder.paper.page import StudyPage
from laworder.paper.study import Options, Study
from laworder.paper.tables import ALL
from laworder.report import sheet_png, standalone
from laworder.runs import atomic_write


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Draw figures from the runs that are done: each as one page with everything inside, its charts as SVG and its
    sheets of pictures as PNG."""

    figure: str = option(ALL, "name of a figure, as `paper list` shows them, or all", positional=True)


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"draw {config.figure} into {config.out / 'figures'} as HTML, SVG and PNG"]


def run(config: Config) -> None:
    """Draw what can be drawn, and say what cannot."""
    if config.figure != ALL and config.figure not in FIGURES:
        raise UserError(f"unknown figure {config.figure!r}{nearest(config.figure, [*FIGURES, ALL])}")
    study = Study(config)
    folder = study.root / "figures"
    for figure in FIGURES.values():
        if config.figure not in (ALL, figure.key):
            continue
        page = StudyPage(title=figure.title, summary=[f"Scale {study.setting.scale}."])
        if not figure.draw(page, study.setting, study.resolver):
            say(f"{figure.key}: nothing is done yet; `laworder paper run {figure.key}` makes what it needs")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files(page, figure.key, study.setting.scale).items():
            atomic_write(folder / name, content)
            say(f"{figure.key}: {folder / name}")


def files(page: StudyPage, key: str, scale: str) -> dict[str, str | bytes]:
    """The page, and each of its charts and sheets by itself: name → content."""
    found: dict[str, str | bytes] = {f"{key}-{scale}.html": page.html()}
    for number, svg in enumerate(page.charts, 1):
        found[f"{key}-{number}-{scale}.svg" if len(page.charts) > 1 else f"{key}-{scale}.svg"] = standalone(svg)
    return found | {f"{name}-{scale}.png": sheet_png(sheet) for name, sheet in page.sheets.items()}
