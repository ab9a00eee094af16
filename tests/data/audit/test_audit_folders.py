"""What the audit takes as splits: pools of prepared data, the parts of a split file, folders of one name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from laworder.cli import main
from laworder.data.audit.folders import apart, join, labels_of, open_splits, open_whole
from laworder.data.audit.parts import by_split_file
from laworder.data.prepare import prepare
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import from_source
from laworder.data.split_files import write_splits
from laworder.data.splits import Split
from laworder.errors import UserError

COUNT = 12


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    source = PhantomSource(COUNT, size=48, modality="mr", pairs_per_patient=1, lesion_range=(0.02, 0.08))
    raw = from_source(source, name="phantom", licence="none", classes=("background", "lesion"), rules={})
    names = source.names
    pools = {"first": names[:7], "second": names[7:], "all": names, "some": names[3:9]}
    prepare(replace(raw, pools=lambda _: pools), tmp_path / "prepared", progress=False)
    return tmp_path / "prepared"


def sizes(folder: Path) -> dict[str, int]:
    return {name: len(one.source) for name, one in open_splits(folder, rule=MaskRule(), group="image").items()}


def test_prepared_data_stands_by_the_pools_that_hold_each_pair_once(prepared: Path) -> None:
    assert sizes(prepared) == {"first": 7, "second": 5}
    assert sizes(Path(f"{prepared}:some")) == {"some": 6}
    alone = open_splits(prepared, rule=MaskRule(), group="image", masks_only=True)
    assert alone["first"].source.read(0).image.shape == (48, 48, 0)


def test_the_most_pools_are_chosen() -> None:
    pools = {"all": ["a", "b", "c"], "a": ["a"], "b": ["b"], "ab": ["a", "b"], "c": ["c"], "none": []}
    assert apart(pools, 3) == ["a", "b", "c"]
    assert apart({"ab": ["a", "b"], "bc": ["b", "c"]}, 3) == []


def test_the_parts_of_a_split_file_are_splits_and_leaks_between_them_show(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "raw"
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
        for file in sorted((prepared / kind).iterdir()):
            (folder / kind / file.name).write_bytes(file.read_bytes())
        twin = sorted((folder / kind).iterdir())[0]
        Image.fromarray(np.asarray(Image.open(twin))).save(folder / kind / "twin.png")
    whole = open_whole(folder, rule=MaskRule(index=True), group="image")
    names = whole.source.names
    write_splits(tmp_path / "split.json", [Split(train=tuple(names[:8]), val=tuple(names[8:]))])
    parts = by_split_file(whole, tmp_path / "split.json", 0)
    assert {part: len(one.source) for part, one in parts.items()} == {"train": 8, "val": 5}
    assert parts["val"].source.read(4).name == "twin"
    with pytest.raises(UserError, match="holds 1 splits, counted from 0; there is no fold 1"):
        by_split_file(whole, tmp_path / "split.json", 1)
    words = ["data", "audit", str(folder), "--index", "--split", str(tmp_path / "split.json"), "--sizes", "48"]
    assert main([*words, "--out", str(tmp_path / "audit.html"), "--strict"]) == 1
    assert f"1 image of train and 1 of val are identical: {names[0]} = twin" in capsys.readouterr().out


def test_folders_are_named_by_as_much_of_their_path_as_tells_them_apart() -> None:
    assert labels_of([Path("/x/a/data"), Path("/x/b/data")]) == ["a/data", "b/data"]
    assert labels_of([Path("/x/a"), Path("/y/b")]) == ["a", "b"]
    one = open_splits_of("train", "test")
    other = open_splits_of("train", "ETIS")
    assert list(join({"first": one, "second": other})) == ["first/train", "test", "second/train", "ETIS"]


def open_splits_of(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, object())
