"""`laworder data split`: the paper's numbers, whole groups, files that are reused and never overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.cli import main
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.brisc import brisc
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.polyps import polyps
from laworder.data.sources.raw import from_source
from laworder.data.split_files import read_nnunet, read_splits

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 prepared pairs of 15 patients, a third of them without a lesion."""
    folder = tmp_path_factory.mktemp("prepared")
    source = PhantomSource(60, size=16, modality="ct", healthy=0.3)
    raw = from_source(source, name="phantom", licence="none", classes=("background", "lesion"), rules={})
    prepare(raw, folder, progress=False)
    return folder


@pytest.fixture
def split(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str, of: str | Path = data) -> tuple[int, str, str]:
        code = main(["data", "split", str(of), "--out", str(tmp_path), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_groups_stay_whole_by_default(split: Run, data: Path, tmp_path: Path) -> None:
    assert split("--val", "0.2", "--test", "0.2")[0] == 0
    source = PreparedSource(data)
    made = read_splits(tmp_path / "split-0.json", source.names)[0]
    group = dict(zip(source.names, source.groups, strict=True))
    train, val, test = ({group[name] for name in part} for part in (made.train, made.val, made.test))
    assert not train & val
    assert not (train | val) & test
    assert (len(made.train), len(made.val), len(made.test)) == (36, 12, 12)


def test_by_image_meets_the_fraction_exactly(split: Run, tmp_path: Path) -> None:
    assert split("--by", "image", "--val", "0.25")[1] == f"{tmp_path / 'split-0.json'}: train 45, val 15\n"


def test_stratified_parts_have_their_share_of_empty_masks(split: Run, data: Path, tmp_path: Path) -> None:
    source = PreparedSource(data)
    empty = {n for i, n in enumerate(source.names) if source.lesion_fraction(i) == 0}
    for seed in range(3):
        assert split("--by", "image", "--val", "0.5", "--stratify", "--seeds", str(seed))[0] == 0
        made = read_splits(tmp_path / f"split-{seed}.json", source.names)[0]
        assert abs(len(empty & set(made.val)) - len(empty) / 2) <= 1


def test_folds_cover_everything_once(split: Run, data: Path, tmp_path: Path) -> None:
    code, out, _ = split("--folds", "5", "--nnunet", str(tmp_path / "splits_final.json"))
    assert code == 0
    assert "fold 4: train 48, val 12" in out
    names = PreparedSource(data).names
    for folds in (read_splits(tmp_path / "split-0.json", names), read_nnunet(tmp_path / "splits_final.json", names)):
        assert sorted(name for fold in folds for name in fold.val) == sorted(names)
    assert json.loads((tmp_path / "splits_final.json").read_text())[0].keys() == {"train", "val"}


def test_a_file_that_is_there_is_reused_and_never_overwritten(split: Run, tmp_path: Path) -> None:
    split("--seeds", "3")
    file = tmp_path / "split-3.json"
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    code, out, _ = split("--seeds", "3,4")
    assert code == 0
    assert "split-3.json: train 52, val 8 (reused)" in out or "split-3.json: train 56, val 4 (reused)" in out
    assert "split-4.json" in out
    for words, message in {
        ("--by", "image"): "was made with seed 3, by group, as 1 splits; these settings ask for seed 3, by image, 1",
        ("--folds", "3"): "ask for seed 3, by group, 3; remove it, or choose another --out",
        ("--val", "0.3"): "was made with other fractions or strata",
    }.items():
        code, _, err = split("--seeds", "3", *words)
        assert code == 2
        assert message in err
    code, _, err = split("--seeds", "3", of="phantom")
    assert code == 2
    assert "made for other data" in err
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1,1"], "seeds: give at least one, and each once, not 1,1"),
        (["--folds", "1"], "folds: 2 or more"),
        (["--folds", "99"], "folds must lie between 2 and the 15 groups there are, not 99"),
        (["--val", "0.6", "--test", "0.5"], "fractions that leave something to train on"),
    ],
)
def test_wrong_settings_are_one_line(split: Run, tmp_path: Path, words: list[str], message: str) -> None:
    code, _, err = split(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_plain_folder_will_do(split: Run, tmp_path: Path) -> None:
    for kind in ("images", "masks"):
        (tmp_path / "from" / kind).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(np.eye(8, dtype=np.uint8) * (i % 2 * 255)).save(tmp_path / "from" / kind / f"{i}.png")
    code, out, _ = split("--stratify", of=tmp_path / "from")
    assert code == 0
    assert "train 18, val 2" in out


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("source", "pool", "sizes"), [("polyps", "order", (1823, 203)), ("brisc2025", "order", (4500, 500))]
)
def test_the_papers_splits_of_the_real_pools(
    split: Run, shared_data: Path, tmp_path: Path, source: str, pool: str, sizes: tuple[int, int]
) -> None:
    """The index alone decides a split: it is written with the real names, without preparing thousands of pictures."""
    raw = {"polyps": polyps, "brisc2025": brisc}[source](shared_data / source)
    told = {"group": "", "width": 1, "height": 1, "lesion_pixels": 1, "image_sha256": "", "mask_sha256": ""}
    records = [{**told, "name": unit.key, "group": unit.group, **unit.extra} for unit in raw.units]
    (tmp_path / "prepared").mkdir()
    index = {"format": 1, "pools": raw.pools(records), "pairs": records}
    (tmp_path / "prepared" / "dataset.json").write_text(json.dumps(index))
    code, out, _ = split("--preset", "paper", of=f"{tmp_path / 'prepared'}:{pool}")
    assert code == 0
    assert out.count(f"train {sizes[0]}, val {sizes[1]}\n") == 5
    held = [read_splits(tmp_path / f"split-{seed}.json", raw.pools(records)[pool])[0].val for seed in range(5)]
    assert len({frozenset(val) for val in held}) == 5
