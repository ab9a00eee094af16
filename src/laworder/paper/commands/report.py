"""`laworder paper report`: the whole study as one page that needs no network."""

from __future__ import annotations

from dataclasses import dataclass

from laworder.config import option
from laworder.console import note, say
from laworder.paper.cells import cells
from laworder.paper.figures import FIGURES
from laworder.paper.page import StudyPage
from laworder.paper.rendering import title
from laworder.paper.story import summary
from laworder.paper.study import Options, Study
from laworder.paper.tables import TABLES
from laworder.runs import atomic_write

LIMIT = 15e6


@dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Write the study as one HTML page from the runs that are done: a summary in words, every table beside the paper's
    numbers, pictures under a slider for their masks, and behind each number the manifests that it comes from."""

    name: str = option("report.html", "the page's name in the study's folder")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [f"write {config.out / config.name} from the runs that are done"]


def run(config: Config) -> None:
    """Write the page."""
    study = Study(config)
    target = study.root / config.name
    study.root.mkdir(parents=True, exist_ok=True)
    text = study_page(study).html()
    atomic_write(target, text)
    if len(text.encode()) > LIMIT:
        note(f"mind: the page has {len(text.encode()) / 1e6:.0f} MB, more than the {LIMIT / 1e6:.0f} that mail takes")
    say(f"report: {target.resolve()}")


def study_page(study: Study) -> StudyPage:
    """Words, tables, figures, and what is behind them."""
    setting, resolver = study.setting, study.resolver
    made = [(table, list(cells(table, setting, resolver))) for table in TABLES.values()]
    page = StudyPage(title="Law and Order: the study", summary=summary(made, setting))
    for table, rows in made:
        page.section(table.title)
        page.study_table(table, rows, setting, caption=title(table, setting).partition(" (")[2].removesuffix(")"))
    for figure in FIGURES.values():
        page.section(figure.title)
        if not figure.draw(page, setting, resolver):
            page.text(f"Nothing is done yet; `laworder paper run {figure.key}` makes what it needs.")
    page.section("The runs behind the numbers")
    page.records()
    return page
