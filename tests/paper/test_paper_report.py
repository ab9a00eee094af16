"""The study's page: everything on it, nothing outside it, and every number with what is behind it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pretend
import pytest
from PIL import Image

from laworder.cli import main
from laworder.errors import UserError
from laworder.paper.commands.report import study_page
from laworder.paper.curves import by_size
from laworder.paper.figures import FIGURES
from laworder.paper.page import StudyPage
from laworder.paper.setting import Setting
from laworder.paper.story import sentence
from laworder.paper.tables import TABLES
from laworder.report.files import enlarged
from laworder.report.pictures import PREDICTION, TRUTH


class Page(HTMLParser):
    """What a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return study_page(pretend.study(tmp_path_factory.mktemp("study"))).html()


def test_nothing_lies_outside_the_page(text: str) -> None:
    page = Page(text)
    places = [a.get("src") or a.get("href") or "" for tag in ("img", "script", "link", "a") for a in page.all(tag)]
    assert all(place.startswith(("data:", "#")) or not place for place in places)
    assert "http" not in re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert len(text.encode()) < 15e6


def test_every_number_opens_the_runs_behind_it(text: str) -> None:
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    opened = [str(b["popovertarget"]) for b in page.all("button")]
    assert len(opened) > 40
    assert set(opened) <= set(page.ids)
    targets = {str(a["href"])[1:] for a in page.all("a")}
    assert targets <= set(page.ids)
    assert any(target.startswith("run-") for target in targets)
    cell = re.search(r"id='segmentation-order_01-polyps-dice'.*?</div>", text, flags=re.DOTALL)
    assert cell is not None
    assert "seed 1: " in cell[0]
    assert "seg evaluate/drawn/order_01/seed 1</a>" in cell[0]
    assert "seg train/drawn/order_01/seed 1</a>" in cell[0]
    assert '"model": "&lt;b&gt;&amp;quoted&lt;/b&gt;"' in text  # what a manifest holds is text, never markup


def test_all_tables_and_figures_are_there(text: str) -> None:
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    for part in (*TABLES.values(), *FIGURES.values()):
        assert part.title.replace("&", "&amp;") in headings
    assert "3 images are in two splits" in text
    assert "x &lt; y &amp; z" in text
    assert text.count("δ at 10, 40, 70 and 95 %") == 2  # two objectives with δ
    assert text.count(">step 20</div>") == 2
    assert len(re.findall(r"alt='Drawn MR, worst of 3: Dice 0\.500 \(\S+\): both outlines'", text)) == 1
    assert text.count("class='mask'") == 5 * 4
    assert text.count("type='range'") == 1
    assert "Dice by lesion size" in text
    assert "synthetic images (the paper&#x27;s count)" in text


def test_the_summary_is_words(text: str) -> None:
    lead = re.findall(r"<p class='lead'>(.*?)</p>", text)
    assert lead[0].startswith("Everything here was made from drawn MR pictures")
    counted = re.match(
        r"(\d+) of the (\d+) cells that can be measured in this setting are complete \(seeds 0, 1\)", lead[1]
    )
    assert counted is not None
    assert int(counted[1]) == int(counted[2]) > 50  # every run is pretended
    assert re.search(r"\. \d+ more need data, weights or a scale that were not given", lead[1])
    assert any(line.startswith("Segmentation comparison: Polyps Dice is highest for ") for line in lead)
    assert not any("In the paper it is" in line for line in lead)  # drawn data compare with nothing


def test_the_summary_sets_real_numbers_beside_the_papers(tmp_path: Path) -> None:
    from laworder.paper.cells import cells

    made = pretend.study(tmp_path, "stages")
    rows = list(cells(TABLES["stages"], made.setting, made.resolver))
    told = sentence(TABLES["stages"], rows, Setting(scale="paper", seeds=(0, 1)))
    assert "In the paper it is Mixed skips {1,2}; of 10 pairs of methods, " in told
    assert sentence(TABLES["stages"], rows[:1], made.setting) == ""


def test_an_empty_study_has_a_page_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ["--out", str(tmp_path), "--device", "cpu"]
    assert main(["paper", "report", *told]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("Nothing is done yet") == len(FIGURES)
    assert page.count("Nothing in this table can be measured") == 3  # image quality: no Inception, no CLIP
    assert "<button class='n'" in page
    assert main(["paper", "figure", *told]) == 0
    assert "audit: nothing is done yet; `laworder paper run audit` makes what it needs" in capsys.readouterr().out
    assert main(["paper", "figure", "adit", *told]) == 2


METHODS = ("uniform", "ratio", "distillation", "law", "law_plus")
FILES = {
    "samples": {"samples-polyps-demo.png", *(f"samples-polyps-{method}-demo.png" for method in METHODS)},
    "deltas": {"deltas-polyps-law-demo.png", "deltas-polyps-law_plus-demo.png"},
    "cases": {"cases-demo.png"},
    "sizes": {"sizes-demo.svg"},
    "doses": {"doses-demo.svg"},
}


@pytest.mark.parametrize("figure", FILES)
def test_a_figure_is_a_page_of_its_own_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figure: str
) -> None:
    pretend.study(tmp_path, figure)
    assert main(["paper", "figure", figure, "--out", str(tmp_path), "--device", "cpu"]) == 0
    folder, told = tmp_path / "figures", capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == {f"{figure}-demo.html", *FILES[figure]}
    for path in folder.iterdir():
        assert f"{figure}: {path}\n" in told
        if path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
                assert min(picture.size) > 128
        elif path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
            assert "var(" not in path.read_text()


def test_masks_are_drawn_into_the_files(tmp_path: Path) -> None:
    made = pretend.study(tmp_path, "cases")
    page = StudyPage(title="t", summary=[])
    assert FIGURES["cases"].draw(page, made.setting, made.resolver)
    sheet = page.sheets["cases"]
    assert len(sheet.rows) == 3  # best, median, worst
    for image, truth, prediction, both in sheet.rows:
        assert image.shape == truth.shape == (64, 64, 3)
        assert both.shape == (256, 256, 3)
        for mask, colour in ((truth, TRUTH), (prediction, PREDICTION)):
            inside = (both == colour).all(-1)
            assert inside.any()
            assert not (inside & ~enlarged(mask[..., 0] > 0)).any()


def test_a_picture_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    made = pretend.study(tmp_path, "cases")
    victim = next(tmp_path.rglob("worst-prediction.png"))
    Image.new("L", (64, 64)).save(victim)
    with pytest.raises(UserError, match=r"worst-prediction\.png is missing or was changed"):
        FIGURES["cases"].draw(StudyPage(title="t", summary=[]), made.setting, made.resolver)


def test_bins_of_several_seeds_are_weighted_by_their_images() -> None:
    def found(images: int, mean: float) -> dict[str, object]:
        return {"model": {"dice_by_lesion_size": [{"low": 0.0, "high": 0.1, "images": images, "mean": mean}]}}

    (only,) = by_size([found(1, 0.0), found(3, 1.0)])["dice_by_lesion_size"]
    assert (only["images"], only["mean"]) == (4, 0.75)
    assert by_size([found(0, float("nan"))]) == {"dice_by_lesion_size": []}


def test_text_on_the_page_is_escaped() -> None:
    page = StudyPage(title="t", summary=[])
    page.findings([{"severity": "error", "text": "<script>alert(1)</script>"}])
    page.findings([])
    assert "<script>alert" not in page.html()
    assert "The audit found nothing." in page.html()


def test_image_quality_is_measured_where_its_networks_are_given(tmp_path: Path) -> None:
    from laworder.paper.cells import cell

    network = tmp_path / "inception.pt"
    network.write_bytes(b"weights")
    made = pretend.study(tmp_path / "study", "components", **{"weights.inception": network, "seeds": "0"})
    table = TABLES["components"]
    fid, clip = (cell(table, made.setting, made.resolver, table.rows[4], column) for column in table.columns)
    assert fid.mean is not None
    assert 50 <= fid.mean <= 90
    assert clip.missing == {0: "no CLIP: give --weights.clip, a hub id or a folder"}
    job = fid.jobs[0]
    assert job.values["only"] == ("fidelity",)
    assert str(job.values["real"]).endswith(":train")
    assert [need.job.command for need in job.needs] == ["synth sample", "divide"]
    # Other weights are another measure.
    network.write_bytes(b"other weights")
    again = pretend.Study(made.options)
    assert cell(table, again.setting, again.resolver, table.rows[4], table.columns[0]).missing[0].startswith("stale: ")
