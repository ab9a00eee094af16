"""Tables as printed: ours, the paper's, the difference; gaps stay gaps."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
import toy_study

from laworder import published
from laworder.errors import UserError
from laworder.paper.cells import Cell, cell, cells
from laworder.paper.rendering import difference, explain, latex, markdown, tex, to_csv
from laworder.paper.running import carry_out
from laworder.paper.setting import Setting
from laworder.paper.tables import ALL, TABLES, chosen

REAL = Setting(scale="paper", seeds=(0, 1))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of toy runs, done for seeds 0 and 1."""
    root = tmp_path_factory.mktemp("study")
    carry_out(toy_study.plan(root, REAL), "cpu", on="local", patience=5)
    return root


def rows(root: Path, setting: Setting = REAL) -> list[list[Cell]]:
    return list(cells(toy_study.table(), setting, toy_study.resolver(root)))


def test_markdown_has_ours_the_papers_and_the_difference(study: Path) -> None:
    text = markdown(toy_study.table(), rows(study), REAL)
    lines = text.splitlines()
    assert lines[0] == "### Toy (the paper's table 7; scale paper, seeds 0, 1)"
    # Counts are 2 + 10·4 + seed: 42 and 43.
    expected = "| ORDER{0,1} | 42.5 ± 0.7 (n=2) | 76.3 ± 1.9 | -33.8 | 42.5 ± 0.7 (n=2) | 77.4 ± 0.8 | -34.9 |"
    assert expected in lines
    assert "| Own | 42.5 ± 0.7 (n=2) | – | – | 42.5 ± 0.7 (n=2) | – | – |" in lines
    assert "- Ours: scale paper" in lines
    assert any(line.startswith("- Paper: 256×256, batch 16") for line in lines)


def test_what_is_missing_is_shown_as_missing(study: Path) -> None:
    more = Setting(scale="paper", seeds=(0, 1, 2))
    text = markdown(toy_study.table(), rows(study, more), more)
    assert "42.5 ± 0.7 (n=2)" in text  # two of three: n says so
    assert "- Missing (never run): unet/polyps-dice seed 2, unet/brisc-dice seed 2, " in text
    nothing = Setting(scale="paper", seeds=(7,))
    empty = rows(study, nothing)
    assert "| ORDER{0,1} | – | 76.3 ± 1.9 | – |" in markdown(toy_study.table(), empty, nothing)
    line = next(line for line in csv.DictReader(io.StringIO(to_csv(toy_study.table(), empty, nothing))))
    assert (line["ours_mean"], line["n"], line["difference"]) == ("", "0", "")
    assert line["missing"] == "never run"


def test_drawn_data_are_not_compared_with_the_paper(study: Path) -> None:
    drawn = Setting(scale="demo", seeds=(0, 1))
    text = markdown(toy_study.table(), rows(study, drawn), drawn)
    assert "| ORDER{0,1} | 42.5 ± 0.7 (n=2) | 76.3 ± 1.9 | – |" in text


def test_a_difference_that_rounds_to_nothing_has_no_minus() -> None:
    table = TABLES["runtime"]
    row, column = (
        next(one for one in parts if one.key == key) for parts, key in ((table.rows, "unet"), (table.columns, "flops"))
    )
    paper = next(r for r in published.find(table=table.published, method=row.published) if r.metric == column.metric)
    just_below = Cell(row, column, values={0: paper.mean - 1e-5}, exact=True, paper=paper)
    assert difference(just_below, REAL) == "+0.000"
    assert difference(Cell(row, column, values={0: paper.mean - 2e-3}, exact=True, paper=paper), REAL) == "-0.002"


def test_csv_has_numbers_in_full(study: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(toy_study.table(), rows(study), REAL))))
    assert len(lines) == 6
    order = lines[2]
    assert (order["method"], order["dataset"], order["n"]) == ("ORDER{0,1}", "polyps", "2")
    assert float(order["ours_std"]) == pytest.approx(0.5**0.5, rel=1e-9)
    assert (order["paper_mean"], order["paper_std"], order["difference"]) == ("76.3", "1.9", "-33.8")


def test_latex_is_escaped_and_complete(study: Path) -> None:
    text = latex(toy_study.table(), rows(study), REAL)
    assert r"ORDER\{0,1\} & 42.5 $\pm$ 0.7 (n=2) & 76.3 $\pm$ 1.9 & -33.8" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    columns = re.search(r"begin{tabular}{l(r+)}", text)
    assert columns is not None
    assert all(line.count(" & ") == len(columns[1]) for line in text.splitlines() if line.endswith(r" \\"))
    assert not re.search(r"(?<!\\)[_%&#](?! )", text.replace(r"\label{tab:segmentation_standard}", ""))
    assert tex("a_b 50 % ± 1") == r"a\_b 50 \% $\pm$ 1"


def test_a_cell_knows_its_manifests(study: Path) -> None:
    found = rows(study)[1][0]
    lines = explain(found)
    assert lines[0] == "order_01/polyps-dice: 42.5 ± 0.7 (n=2); the paper: 76.3 ± 1.9"
    paths = [Path(line.strip()) for line in lines if line.startswith("  ")]
    assert len(paths) == 4  # two seeds, each with its record and that of the start it was counted from
    assert all(path.is_file() for path in paths)


def test_a_number_that_somebody_changed_is_missing(study: Path) -> None:
    table = toy_study.table()
    column = table.columns[0]
    resolver = toy_study.resolver(study)
    (file,) = {job.out / "value.json" for job in cell(table, REAL, resolver, table.rows[0], column).jobs.values()} & {
        path for path in study.rglob("value.json") if "seed-0" in str(path) and "unet" in str(path)
    }
    before = file.read_text()
    file.write_text('{"value": 1000}')
    try:
        found = cell(table, REAL, toy_study.resolver(study), table.rows[0], column)
    finally:
        file.write_text(before)
    assert "was changed after" in found.missing[0]
    assert found.values == {1: 43.0}


def test_every_published_cell_of_a_table_has_its_place() -> None:
    """No number of the paper is lost by a misspelt row or column."""
    for table in TABLES.values():
        ours = {(row.published, column.dataset, column.metric) for row in table.rows for column in table.columns}
        theirs = {(r.method, r.dataset, r.metric) for r in published.find(table=table.published)}
        assert theirs <= ours, f"{table.key} lacks {theirs - ours}"


def test_tables_are_found_by_name() -> None:
    assert [table.key for table in chosen(ALL)] == list(TABLES)
    assert chosen("stages") == [TABLES["stages"]]
    with pytest.raises(UserError, match="unknown table 'stage'; did you mean 'stages'"):
        chosen("stage")
    assert {table.published for table in TABLES.values()} == set(published.TABLES)
