"""Splits: the paper's counts, whole patients, even strata, and files that fit only their own data."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laworder.data.sources.phantom import PhantomSource
from laworder.data.split_files import names_hash, read_nnunet, read_splits, write_nnunet, write_splits
from laworder.data.splits import Split, make_folds, make_split, split_source
from laworder.errors import UserError


def names(count: int) -> list[str]:
    return [f"n{i:05d}" for i in range(count)]


def patients(count: int, each: int) -> tuple[list[str], list[str]]:
    found = names(count)
    return found, [f"p{i // each}" for i in range(count)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "train", "val"), [(2026, 1823, 203), (5000, 4500, 500)])
def test_the_papers_counts(seed: int, count: int, train: int, val: int) -> None:
    split = make_split(*patients(count, 7), seed=seed, by="image")
    assert (len(split.train), len(split.val), len(split.test)) == (train, val, 0)
    assert set(split.names) == set(names(count))


def test_seeds_differ_and_repeat() -> None:
    found = patients(200, 1)
    splits = [make_split(*found, seed=seed) for seed in range(5)]
    assert len({split.val for split in splits}) == 5
    assert make_split(*found, seed=3) == splits[3]


def test_golden_order() -> None:
    """SHA-256 of (seed, name) decides, so this holds on every platform and for every version of every library."""
    split = make_split(names(10), names(10), val=0.3, test=0.2, seed=0, by="image")
    assert split == Split(
        train=("n00000", "n00008", "n00001", "n00002", "n00005"),
        val=("n00006", "n00007", "n00004"),
        test=("n00009", "n00003"),
        seed=0,
        by="image",
    )


@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=40),
    seed=st.integers(0, 9),
    val=st.floats(0.05, 0.5),
    test=st.sampled_from([0.0, 0.1, 0.3]),
    by=st.sampled_from(["group", "image"]),
    stratified=st.booleans(),
)
def test_every_pair_once_and_no_group_on_two_sides(
    sizes: list[int], seed: int, val: float, test: float, by: str, stratified: bool
) -> None:
    groups = [f"g{i}" for i, size in enumerate(sizes) for _ in range(size)]
    found = names(len(groups))
    areas = [random.Random(n).random() ** 3 for n in found] if stratified else None
    split = make_split(found, groups, val=val, test=test, seed=seed, by=by, areas=areas)
    assert sorted(split.names) == found
    assert split.train
    assert split.val
    assert bool(split.test) == (test > 0)
    group_of = dict(zip(found, groups, strict=True))
    sides = [{group_of[n] for n in part} for part in (split.train, split.val, split.test)]
    if by == "group":
        assert sum(map(len, sides)) == len(set().union(*sides))
    if by == "image" and not (stratified or test):
        assert len(split.val) == max(1, int(val * len(found) + 0.5))


@given(sizes=st.lists(st.integers(1, 9), min_size=5, max_size=40), folds=st.integers(2, 5), seed=st.integers(0, 5))
def test_folds_cover_everything_once(sizes: list[int], folds: int, seed: int) -> None:
    groups = [f"g{i}" for i, size in enumerate(sizes) for _ in range(size)]
    found = names(len(groups))
    splits = make_folds(found, groups, folds=folds, seed=seed)
    assert sorted(n for split in splits for n in split.val) == found
    assert all(sorted(split.names) == found for split in splits)
    group_of = dict(zip(found, groups, strict=True))
    for split in splits:
        assert not {group_of[n] for n in split.train} & {group_of[n] for n in split.val}
    counts = [len(split.val) for split in splits]
    assert max(counts) - min(counts) <= max(sizes)


def test_folds_by_image_are_equal() -> None:
    counts = [len(s.val) for s in make_folds(*patients(103, 10), folds=5, by="image")]
    assert sorted(counts) == [20, 20, 21, 21, 21]


def test_order_of_the_names_does_not_matter() -> None:
    found, groups = patients(100, 3)
    pairs = list(zip(found, groups, strict=True))
    random.Random(0).shuffle(pairs)
    shuffled = [list(part) for part in zip(*pairs, strict=True)]
    assert make_split(*shuffled, val=0.2, test=0.2) == make_split(found, groups, val=0.2, test=0.2)
    assert make_folds(*shuffled) == make_folds(found, groups)


def test_group_sizes_are_met_as_nearly_as_groups_allow() -> None:
    for seed in range(20):
        split = make_split(*patients(400, 4), val=0.1, test=0.2, seed=seed)
        assert (len(split.val), len(split.test)) == (40, 80)


@pytest.mark.parametrize("by", ["image", "group"])
def test_strata_are_shared_out_evenly(by: str) -> None:
    found, groups = patients(400, 2)
    areas = [0.0 if i < 80 else i / 400 for i in range(400)]
    size = dict(zip(found, areas, strict=True))
    for seed in range(10):
        split = make_split(found, groups, val=0.1, seed=seed, by=by, areas=areas)
        assert len(split.val) == pytest.approx(40, abs=4)
        assert sum(size[n] == 0 for n in split.val) == pytest.approx(8, abs=1)
        assert sum(0 < size[n] < 0.4 for n in split.val) == pytest.approx(8, abs=1)
        assert sum(size[n] >= 0.8 for n in split.val) == pytest.approx(8, abs=1)
    for fold in make_folds(found, groups, by=by, areas=areas):
        assert sum(size[n] == 0 for n in fold.val) == pytest.approx(16, abs=2)


def test_a_source_is_split_by_patient() -> None:
    source = PhantomSource(40, size=16)
    split = split_source(source, val=0.2)
    train, val = (split.indices(part, source.names) for part in ("train", "val"))
    assert sorted(train + val) == list(range(40))
    assert len(val) == 8
    assert not {source.groups[i] for i in train} & {source.groups[i] for i in val}
    assert [source.names[i] for i in val] == list(split.part("val"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"val": 0.0}, "val and test are fractions"),
        ({"val": 0.7, "test": 0.3}, "val and test are fractions"),
        ({"by": "grupo"}, "did you mean 'group'"),
        ({"areas": [0.1]}, "as many groups and areas"),
    ],
)
def test_mistakes_are_named(arguments: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make_split(*patients(20, 2), **arguments)


def test_too_few_groups_or_double_names() -> None:
    with pytest.raises(UserError, match="1 groups cannot fill 2 parts"):
        make_split(*patients(20, 20))
    with pytest.raises(UserError, match="'a' occurs more than once"):
        make_split(["a", "b", "a"], ["1", "2", "3"])
    for folds in (1, 3):
        with pytest.raises(UserError, match="folds must lie between 2 and the 2 groups"):
            make_folds(*patients(20, 10), folds=folds)
    split = make_split(*patients(20, 2))
    with pytest.raises(UserError, match="did you mean 'train'"):
        split.part("trian")
    with pytest.raises(UserError, match="the data lacks"):
        split.indices("train", ["n00000"])


def test_files_come_back_as_they_went(tmp_path: Path) -> None:
    found = patients(50, 5)
    one, many = make_split(*found, test=0.2, seed=4), make_folds(*found, folds=5)
    write_splits(tmp_path / "deep" / "one.json", [one])
    write_splits(tmp_path / "many.json", many)
    assert read_splits(tmp_path / "deep" / "one.json", found[0][::-1]) == [one]
    assert read_splits(tmp_path / "many.json", found[0]) == many
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "many.json"]
    with pytest.raises(UserError, match="no split to write"):
        write_splits(tmp_path / "none.json", [])


def test_a_split_for_other_data_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_splits(path, [make_split(*patients(20, 1))])
    here = [*names(18), "new", "newer"]
    with pytest.raises(UserError) as error:
        read_splits(path, here)
    for word in ("split.json", "made for other data", "'n00018', 'n00019'", "'new', 'newer'"):
        assert word in str(error.value)


def test_an_edited_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_splits(path, [make_split(*patients(20, 1))])
    content = json.loads(path.read_text())
    content["splits"][0]["train"][0] = "n99999"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"split\.json: its names do not have the hash"):
        read_splits(path, names(20))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a split file"),
        ('{"format": "laworder-split/1"}', "no list of splits"),
        ('{"format": "laworder-split/1", "splits": [3]}', "lists of names"),
        ('{"format": "laworder-split/1", "splits": [{"train": ["a"], "val": []}]}', "empty part"),
        ('{"format": "laworder-split/1", "splits": [{"train": ["a"], "val": ["a"]}]}', "in two parts"),
        ('{"format": "laworder-split/1", "splits": [{"train": [1], "val": ["a"]}]}', "lists of names"),
    ],
)
def test_broken_files_are_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"split\.json: .*{says}"):
        read_splits(path, ["a"])
    with pytest.raises(UserError, match=r"none\.json: cannot be read"):
        read_splits(tmp_path / "none.json", ["a"])


def test_nnunet_there_and_back(tmp_path: Path) -> None:
    found = patients(30, 3)
    folds = make_folds(*found, folds=5)
    path = tmp_path / "splits_final.json"
    write_nnunet(path, folds)
    content = json.loads(path.read_text())
    assert [set(entry) for entry in content] == [{"train", "val"}] * 5
    back = read_nnunet(path, [*found[0], "synthetic"])
    assert [(s.train, s.val) for s in back] == [(s.train, s.val) for s in folds]
    with pytest.raises(UserError, match=r"splits_final\.json: made for other data: .* and \d+ more are not here"):
        read_nnunet(path, found[0][:3])


def test_names_hash_is_of_a_set() -> None:
    assert names_hash(["b", "a"]) == names_hash(["a", "b"]) != names_hash(["a", "c"])
