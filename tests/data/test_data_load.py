"""Loading into memory, fingerprints, and the work over cores."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from laworder.data.load import lesion_fractions, load_arrays, source_hash
from laworder.data.pairs import Pair, PairDataset
from laworder.data.parallel import over_cores
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError


class ListSource:
    """Pairs held in a list."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pairs = pairs
        self.names, self.groups = [p.name for p in pairs], [p.group for p in pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> Pair:
        return self.pairs[index]


def held(count: int = 5, **options: object) -> ListSource:
    source = PhantomSource(count, size=24, modality="mixed", pairs_per_patient=1, **options)  # type: ignore[arg-type]
    return ListSource([source.read(i) for i in range(count)])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("workers", [1, 3])
def test_arrays_are_the_dataset_stacked(channels: int, workers: int) -> None:
    source = PhantomSource(9, size=32, modality="mixed")
    arrays = load_arrays(source, 20, channels, workers=workers, progress=False)
    dataset = PairDataset(source, size=20, channels=channels)
    assert arrays.images.shape == (9, channels, 20, 20)
    assert arrays.masks.shape == (9, 1, 20, 20)
    assert arrays.images.dtype == arrays.masks.dtype == torch.uint8
    for i in range(9):
        assert torch.equal(arrays.images[i], dataset[i]["image"])
        assert torch.equal(arrays.masks[i], dataset[i]["mask"])
    assert arrays.names == source.names


def test_a_part_in_the_order_asked_for() -> None:
    source = PhantomSource(8, size=24)
    images, masks, names = load_arrays(source, 24, indices=[5, 2, 5], progress=False)
    everything = load_arrays(source, 24, progress=False)
    assert names == [source.names[i] for i in (5, 2, 5)]
    assert torch.equal(images, everything.images[[5, 2, 5]])
    assert torch.equal(masks, everything.masks[[5, 2, 5]])


def test_nothing_to_load_is_said() -> None:
    with pytest.raises(UserError, match="holds no pair"):
        load_arrays(PhantomSource(3, size=16), 16, indices=[])


def test_no_bar_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    load_arrays(PhantomSource(3, size=16), 16)
    assert capfd.readouterr() == ("", "")


def test_an_error_in_one_pair_is_raised() -> None:
    source = held()

    def read(index: int) -> Pair:
        if index == 3:
            raise UserError("bad.png: broken")
        return source.pairs[index]

    source.read = read  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"bad\.png: broken"):
        load_arrays(source, 16, workers=2, progress=False)


@pytest.mark.untyped
def test_the_hash_sees_every_change() -> None:
    base = held()
    hashes = {source_hash(base)}
    assert source_hash(ListSource(list(base.pairs)), workers=3) in hashes
    first = base.pairs[0]
    image, mask = first.image.copy(), first.mask.copy()
    image[0, 0, 0] ^= 1
    mask[0, 0] ^= 1
    wide = first.image.reshape(12, 48, -1)
    for other in (
        replace(first, image=image),
        replace(first, mask=mask),
        replace(first, name="other"),
        replace(first, group="other"),
        replace(first, image=wide),
    ):
        hashes.add(source_hash(ListSource([other, *base.pairs[1:]])))
    hashes.add(source_hash(ListSource(base.pairs[::-1])))
    hashes.add(source_hash(ListSource(base.pairs[:-1])))
    assert len(hashes) == 8


def test_lesion_fractions_are_those_of_the_masks() -> None:
    source = PhantomSource(7, size=64, healthy=0.4)
    assert lesion_fractions(source, workers=2) == pytest.approx([source.lesion_fraction(i) for i in range(7)], abs=1e-3)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 200])
@pytest.mark.parametrize("workers", [1, 2, 7, None])
def test_every_item_is_worked_on_once(count: int, workers: int | None) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def work(i: int) -> None:
        with lock:
            seen.append(i)

    over_cores(work, count, workers=workers)
    assert sorted(seen) == list(range(count))


def test_an_error_ends_the_work() -> None:
    seen: list[int] = []

    def work(i: int) -> None:
        seen.append(i)
        if i == 0:
            raise UserError("first")

    with pytest.raises(UserError, match="first"):
        over_cores(work, 100_000, workers=1)
    assert len(seen) < 100_000


@pytest.mark.parametrize(("size", "channels", "says"), [(0, 3, "size must be"), (8, 2, "channels must be")])
def test_dataset_mistakes_are_named(size: int, channels: int, says: str) -> None:
    with pytest.raises(UserError, match=says):
        PairDataset(PhantomSource(2, size=16), size=size, channels=channels)


def test_dataset_resizes_image_smoothly_and_mask_by_nearest() -> None:
    image = np.zeros((32, 64, 3), np.uint8)
    image[:, ::2] = 200
    mask = np.zeros((32, 64), np.uint8)
    mask[8:16, 16:32] = 2
    dataset = PairDataset(ListSource([Pair(image, mask, "a", "g")]), size=16, indices=[0])
    item = dataset[0]
    assert len(dataset) == 1
    assert dataset.names == ["a"]
    assert item["index"] == 0
    assert (item["image"].float() - 100).abs().max() < 30  # stripes are averaged, not sampled
    assert item["mask"].unique().tolist() == [0, 2]
    assert item["mask"].bool().sum() == 4 * 4
