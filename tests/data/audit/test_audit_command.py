"""`laworder data audit` on folders: layouts, exit codes, what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.cli import main
from laworder.data.audit.folders import open_splits
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError


def fill(images: Path, masks: Path, indices: range, *, levels: int = 255) -> None:
    source = PhantomSource(40, size=64, modality="mr", pairs_per_patient=1, lesion_range=(0.02, 0.08))
    for folder in (images, masks):
        folder.mkdir(parents=True)
    for i in indices:
        pair = source.read(i)
        Image.fromarray(pair.image[..., 0]).save(images / f"{pair.name}.png")
        Image.fromarray(pair.mask * np.uint8(levels)).save(masks / f"{pair.name}.png")


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    folder = tmp_path / "my data"
    fill(folder / "train" / "images", folder / "train" / "masks", range(24))
    fill(folder / "test" / "images", folder / "test" / "masks", range(23, 34))  # number 23 is in both
    return folder


def names(folder: Path) -> dict[str, int]:
    return {name: len(one.source) for name, one in open_splits(folder, rule=MaskRule(), group="image").items()}


def test_the_command_writes_a_page_and_numbers_and_is_strict_when_asked(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "audit.html"
    words = ["data", "audit", str(layout), "--out", str(out), "--sizes", "64"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "error: 1 image of train and 1 of test are identical" in printed
    assert re.search(r"^Survival, train", printed, re.MULTILINE)
    page = out.read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    numbers = json.loads(out.with_suffix(".json").read_text())
    assert numbers["duplicates"]["across"]["identical"]["train and test"]["images"] == [1, 1]
    assert numbers["config"]["sizes"] == [64]
    assert main([*words, "--strict"]) == 1


def test_strict_without_errors_is_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "a" / "images", tmp_path / "a" / "masks", range(12))
    fill(tmp_path / "b" / "images", tmp_path / "b" / "masks", range(12, 20))
    words = ["data", "audit", str(tmp_path / "a"), "--other", str(tmp_path / "b"), "--sizes", "64", "--strict"]
    assert main([*words, "--out", str(tmp_path / "audit.html")]) == 0
    printed = capsys.readouterr().out
    assert "a and b" in printed
    assert "error" not in printed.replace("standard errors", "").replace("errors over", "").replace("errors", "")


def test_a_dry_run_writes_nothing(layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "audit", str(layout), "--out", str(tmp_path / "x.html"), "--dry-run"]) == 0
    assert "read every pair" in capsys.readouterr().out
    assert not (tmp_path / "x.html").exists()


def test_faulty_files_are_errors_of_the_data_and_not_of_the_command(
    layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (layout / "train" / "masks").joinpath("stray.png").write_bytes(b"no picture")
    broken = sorted((layout / "train" / "images").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:40])
    words = ["data", "audit", str(layout), "--out", str(tmp_path / "x.html"), "--sizes", "64", "--strict"]
    assert main(words) == 1
    printed = capsys.readouterr().out
    assert "train: 2 problems with files" in printed
    assert broken.name in printed


def test_layouts(layout: Path, tmp_path: Path) -> None:
    assert names(layout) == {"train": 24, "test": 11}
    assert names(layout / "train") == {"train": 24}
    both = tmp_path / "both"
    fill(both / "images" / "train", both / "masks" / "train", range(5))
    fill(both / "images" / "val", both / "masks" / "val", range(5, 8))
    assert names(both) == {"train": 5, "val": 3}
    flat = tmp_path / "flat"
    fill(flat, tmp_path / "elsewhere", range(3))
    for file in (tmp_path / "elsewhere").iterdir():
        file.rename(flat / f"{file.stem}_mask.png")
    assert names(flat) == {"flat": 3}


def test_masks_alone_and_soft_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "images", tmp_path / "masks", range(4))
    file = sorted((tmp_path / "masks").iterdir())[0]
    wide = Image.open(file).resize((8, 8), Image.Resampling.BOX).resize((64, 64), Image.Resampling.BILINEAR)
    wide.point(lambda v: min(255, v * 2)).save(file)
    words = ["data", "audit", str(tmp_path / "masks"), "--masks-only", "--sizes", "64"]
    assert main([*words, "--out", str(tmp_path / "audit.html")]) == 0
    printed = capsys.readouterr().out
    assert "1 mask with wide soft edges" in printed
    assert "Duplicates" not in printed


def test_masks_that_mean_lesion_by_different_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "train" / "images", tmp_path / "train" / "masks", range(6))
    fill(tmp_path / "test" / "images", tmp_path / "test" / "masks", range(6, 8), levels=1)
    words = ["data", "audit", str(tmp_path), "--sizes", "64", "--out", str(tmp_path / "audit.html")]
    assert main(words) == 0
    ones = sorted(file.stem for file in (tmp_path / "test" / "masks").iterdir())
    printed = capsys.readouterr().out
    assert f"warning: lesion is 255 in 6 mask files, but 1 in {', '.join(ones)}: alike here" in printed
    # Class indices may differ from file to file: that is what they are for.
    file = tmp_path / "test" / "masks" / f"{ones[0]}.png"
    Image.fromarray(np.asarray(Image.open(file)) * np.uint8(2)).save(file)
    for other in (tmp_path / "train" / "masks").iterdir():
        Image.fromarray(np.asarray(Image.open(other)) // np.uint8(255)).save(other)
    assert main([*words, "--index"]) == 0
    assert "alike here" not in capsys.readouterr().out


def test_mistakes_are_told_in_one_line(layout: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        open_splits(tmp_path / "nowhere", rule=MaskRule(), group="image")
    (tmp_path / "bare").mkdir()
    with pytest.raises(UserError, match="holds no masks"):
        open_splits(tmp_path / "bare", rule=MaskRule(), group="image", masks_only=True)
    assert main(["data", "audit", str(layout), "--out", "page.pdf"]) == 2
    assert main(["data", "audit", str(layout), "--other", str(layout), "--out", "page.html"]) == 2
    assert main(["data", "audit", str(layout), "--vae", str(tmp_path), "--out", "page.html"]) == 2
