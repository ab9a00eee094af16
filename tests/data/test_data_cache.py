"""The cache: the same batches whatever its size, one decoding per pair, and what is kept is only used where it fits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from laworder.data.cache import PairCache
from laworder.data.load import load_arrays
from laworder.data.pairs import Pair, Source
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import from_source
from laworder.errors import UserError
from laworder.runs import permutation

SIZE = 24
PAIR = 4 * SIZE * SIZE


class Counting:
    """A source that counts how often each pair is decoded."""

    def __init__(self, source: Source) -> None:
        self.source, self.names, self.groups = source, source.names, source.groups
        self.reads: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> Pair:
        self.reads[index] += 1
        return self.source.read(index)


@pytest.fixture
def source() -> Counting:
    return Counting(PhantomSource(13, size=32, modality="mixed"))


def prepared(folder: Path, seed: int = 0) -> PreparedSource:
    drawn = PhantomSource(13, size=32, seed=seed)
    prepare(from_source(drawn, name="p", licence="", classes=(), rules={"seed": seed}), folder, progress=False)
    return PreparedSource(folder)


@pytest.mark.parametrize("pairs", [0, 1, 5, 13, 99])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_do_not_depend_on_the_cache(source: Counting, pairs: int, workers: int) -> None:
    arrays = load_arrays(source, SIZE, progress=False)
    source.reads.clear()
    with PairCache(source, size=SIZE, cache_gb=(pairs * PAIR + 1) / 1e9, workers=workers) as cache:
        for epoch in range(3):
            order = permutation(5, epoch, 13)
            batches = list(cache.epoch(epoch, batch_size=4, seed=5))
            assert [len(batch.positions) for batch in batches] == [4, 4, 4, 1]
            seen = torch.cat([batch.positions for batch in batches])
            assert seen.tolist() == order.tolist()
            assert torch.equal(torch.cat([b.images for b in batches]), arrays.images[seen])
            assert torch.equal(torch.cat([b.masks for b in batches]), arrays.masks[seen])
        assert cache.cached == min(pairs, 13)
    assert source.reads == {i: 1 if i < pairs else 3 for i in range(13)}


def test_orders_differ_by_seed_and_by_epoch(source: Counting) -> None:
    with PairCache(source, size=SIZE) as cache:
        orders = [
            tuple(p for batch in cache.epoch(epoch, batch_size=13, seed=seed) for p in batch.positions.tolist())
            for seed in (0, 1)
            for epoch in (0, 1)
        ]
        again = tuple(p for batch in cache.epoch(1, batch_size=3, seed=1) for p in batch.positions.tolist())
    assert len(set(orders)) == 4
    assert again == orders[3]


def test_a_part_of_the_source_in_gray(source: Counting) -> None:
    with PairCache(source, size=SIZE, channels=1, indices=[7, 2, 9]) as cache:
        batch = cache.gather([2, 0, 0])
        expected = load_arrays(source, SIZE, 1, [9, 7, 7], progress=False)
        assert torch.equal(batch.images, expected.images)
        assert torch.equal(batch.masks, expected.masks)
        assert cache.names == [source.names[i] for i in (7, 2, 9)]


def test_a_batch_is_a_copy(source: Counting) -> None:
    with PairCache(source, size=SIZE) as cache:
        cache.gather([3]).images.zero_()
        assert cache.gather([3]).images.any()


def test_the_file_stays_within_its_bound(tmp_path: Path) -> None:
    with PairCache(prepared(tmp_path / "data"), size=SIZE, cache_gb=5.5 * PAIR / 1e9, folder=tmp_path / "c") as cache:
        list(cache.epoch(0, batch_size=4))
        assert cache.cached == 5
    assert sorted(f.stat().st_size for f in (tmp_path / "c").iterdir()) == [5, 5 * PAIR]


def test_a_kept_cache_serves_the_next_run(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data")
    with PairCache(data, size=SIZE, folder=tmp_path / "c") as cache:
        first = cache.gather(range(13))
    for file in (tmp_path / "data" / "images").iterdir():
        file.unlink()
    with PairCache(data, size=SIZE, folder=tmp_path / "c") as cache:
        assert cache.cached == 13
        again = cache.gather(range(13))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.masks, again.masks)


def test_other_data_sizes_and_parts_have_caches_of_their_own(tmp_path: Path) -> None:
    data, other = prepared(tmp_path / "data"), prepared(tmp_path / "other", seed=1)
    for source, size, indices in ((data, SIZE, None), (other, SIZE, None), (data, 20, None), (data, SIZE, [1, 2])):
        with PairCache(source, size=size, indices=indices, folder=tmp_path / "c") as cache:
            assert cache.cached == 0
            cache.gather([0])


@pytest.mark.parametrize("harm", ["short mark", "wrong mark", "no mark", "short pairs"])
def test_a_cache_that_is_not_whole_is_filled_anew(tmp_path: Path, harm: str) -> None:
    data = prepared(tmp_path / "data")
    with PairCache(data, size=SIZE, folder=tmp_path / "c") as cache:
        whole = cache.gather(range(13))
    mark, pairs = sorted((tmp_path / "c").iterdir(), key=lambda f: f.suffix != ".filled")
    match harm:
        case "short mark":
            mark.write_bytes(b"\1" * 12)
        case "wrong mark":
            mark.write_bytes(b"\7" * 13)
        case "no mark":
            mark.unlink()
        case "short pairs":
            os.truncate(pairs, 100)
    with PairCache(data, size=SIZE, folder=tmp_path / "c") as cache:
        assert cache.cached == 0
        assert torch.equal(cache.gather(range(13)).images, whole.images)


def test_a_killed_process_leaves_no_temporary_cache(tmp_path: Path) -> None:
    code = (
        "import os\nfrom laworder.data.cache import PairCache\n"
        "from laworder.data.sources.phantom import PhantomSource\n"
        "cache = PairCache(PhantomSource(8, size=32), size=32); cache.gather(range(8)); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_no_room_is_said_before_anything_is_read(source: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        UserError, match=r"no room for a cache of 0.0 GB at .*: No space left on device; lower cache_gb"
    ):
        PairCache(source, size=SIZE)


def test_wrong_settings_are_named(source: Counting, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cache_gb must be 0 or more, not -1"):
        PairCache(source, size=SIZE, cache_gb=-1)
    with pytest.raises(UserError, match="a cache is kept for prepared data only"):
        PairCache(source, size=SIZE, folder=tmp_path)
    with pytest.raises(UserError, match="nothing to load"):
        PairCache(source, size=SIZE, indices=[])
    with PairCache(source, size=SIZE) as cache, pytest.raises(UserError, match="batch_size must be at least 1"):
        next(cache.epoch(0, batch_size=0))
