"""The paper's numbers: cells by hand, counts, and every number of the source where it lies beside the checkout."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from laworder import published
from laworder.errors import UserError

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper" / "law-and-order.tex"


@pytest.mark.parametrize(
    ("table", "method", "dataset", "metric", "text"),
    [
        ("law_image_quality", "LAW", "polyps", "fid", "52.32 ± 0.70"),
        ("law_image_quality", "ArSDM", "kits19", "fid", "104.12 ± 0.53"),
        ("law_image_quality", "Adaptive Distillation", "polyps", "clip_i", "0.903 ± 0.011"),
        ("law_image_quality", "LAW", "kits19", "clip_i", "0.937 ± 0.001"),
        ("law_image_quality_heldout", "ControlNet", "polyps", "fid", "158.13 ± 0.15"),
        ("law_image_quality_heldout", "LAW", "polyps", "fid", "108.43 ± 0.71"),
        ("law_image_quality_heldout", "LAW", "kits19", "fid", "89.51 ± 0.96"),
        ("law_image_quality_heldout", "LAW", "brisc", "fid", "112.58 ± 0.68"),
        ("law_image_quality_heldout", "ArSDM", "brisc", "clip_i", "0.891 ± 0.093"),
        ("law_mask_recovery", "ControlNet", "polyps", "mask_dice", "0.681 ± 0.013"),
        ("law_mask_recovery", "LAW", "polyps", "mask_dice", "0.825 ± 0.003"),
        ("law_mask_recovery", "LAW", "brisc", "mask_iou", "0.547 ± 0.013"),
        ("law_mask_recovery", "ArSDM", "kits19", "mask_iou", "0.453 ± 0.026"),
        ("downstream", "Real only", "kits19", "dice", "70.4 ± 2.9"),
        ("downstream", "Real + LAW", "polyps", "dice", "74.1 ± 0.8"),
        ("downstream", "Real + Adaptive Distillation", "kits19", "dice", "73.3 ± 0.5"),
        ("dose_controls", "Real + LAW, 1000", "polyps", "dice", "73.8 ± 0.7"),
        ("ablation_law", "LAW w/o max-weight clamp", "polyps", "fid", "80.22"),
        ("ablation_law", "+ Dice regularizer (LAW)", "polyps", "clip_i", "0.893"),
        ("segmentation_standard", "PraNet", "brisc", "iou", "76.8 ± 0.3"),
        ("segmentation_standard", "ORDER{0,1}", "polyps", "dice", "76.3 ± 1.9"),
        ("segmentation_standard", "EGE-UNet", "any", "params", "510000"),
        ("segmentation_attention", "ORDER backbone + SE skip", "kvasir", "dice", "77.3 ± 2.9"),
        ("segmentation_attention", "ORDER{0,1}", "clinicdb", "iou", "64.8 ± 2.4"),
        ("segmentation_runtime", "ORDER{1,2}", "any", "peak_mb", "8290.8"),
        ("segmentation_runtime", "ORDER{0,1}", "any", "params", "42265"),
        ("ablation_stages", "All skips {0,1,2,3}", "polyps", "dice", "16.7 ± 1.4"),
        ("ablation_stages", "Mixed skips {1,2}", "polyps", "dice", "75.7 ± 1.1"),
    ],
)
def test_a_cell_is_as_printed(table: str, method: str, dataset: str, metric: str, text: str) -> None:
    assert [row.text() for row in published.find(table=table, method=method, dataset=dataset, metric=metric)] == [text]


def test_every_table_is_there_in_full() -> None:
    counts = Counter(row.table for row in published.find())
    assert counts == {
        "law_image_quality": 16,
        "law_image_quality_heldout": 24,
        "law_mask_recovery": 24,
        "downstream": 15,
        "dose_controls": 5,
        "ablation_law": 12,
        "segmentation_standard": 30,
        "segmentation_attention": 32,
        "segmentation_runtime": 30,
        "ablation_stages": 10,
    }
    assert list(counts) == list(published.TABLES)
    assert [table.number for table in published.TABLES.values()] == list(range(1, 11))
    assert {row.metric for row in published.find()} == set(published.METRICS)
    assert len({(r.table, r.method, r.dataset, r.metric) for r in published.find()}) == 198


def test_names_are_checked_and_missing_cells_are_no_error() -> None:
    with pytest.raises(UserError, match=r"no dataset 'polyp'; did you mean 'polyps'\?"):
        published.find(dataset="polyp")
    assert published.find(table="law_image_quality", dataset="brisc") == []


@pytest.mark.real_data
@pytest.mark.parametrize("table", list(published.TABLES))
def test_the_numbers_are_those_of_the_source(table: str) -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source is not beside this checkout")
    source = PAPER.read_text(encoding="utf-8")
    start = source.index(r"\midrule", source.index(rf"\label{{tab:{table}}}"))
    body = source[start : source.index(r"\bottomrule", start)]
    rows = [line.split(" & ", 1)[1] for line in body.split(r"\\") if " & " in line]
    if table == "dose_controls":  # the column of doses, which are in our names
        rows = [row.split(" & ", 1)[1] for row in rows]
    printed = re.findall(r"\d[\d,]*(?:\.\d+)?[MKG]?", " ".join(rows))
    units = {"M": 1e6, "K": 1e3, "G": 1.0}
    numbers = [float(n.rstrip("MKG").replace(",", "")) * units.get(n[-1], 1.0) for n in printed]
    ours = [value for row in published.find(table=table) for value in (row.mean, row.std) if value is not None]
    assert ours == pytest.approx(numbers, rel=1e-12)
