"""The phantom source: deterministic, of known lesion size, fast, plausible, and worth learning."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from laworder.data.pairs import Pair, Source
from laworder.data.sources.phantom import MODALITIES, PhantomSource
from laworder.errors import UserError

KINDS = ("colon", "mr", "ct")


def digest(pair: Pair) -> str:
    return hashlib.sha256(pair.image.tobytes() + pair.mask.tobytes()).hexdigest()


@pytest.mark.parametrize("kind", MODALITIES)
@pytest.mark.parametrize("size", [33, 64, 256])
def test_pairs_have_the_one_shape(kind: str, size: int) -> None:
    source = PhantomSource(13, size=size, modality=kind, distractor=0.5)
    assert isinstance(source, Source)
    assert len(source) == len(set(source.names)) == 13
    for index in (0, 5, 12):
        pair = source.read(index)
        channels = 3 if source.modalities[index] == "colon" else 1
        assert pair.image.shape == (size, size, channels)
        assert pair.mask.shape == (size, size)
        assert pair.image.dtype == pair.mask.dtype == np.uint8
        assert set(np.unique(pair.mask)) == {0, 1}
        assert (pair.name, pair.group) == (source.names[index], source.groups[index])


@pytest.mark.parametrize("kind", KINDS)
def test_lesion_area_is_the_planned_one_to_the_pixel(kind: str) -> None:
    source = PhantomSource(24, size=128, modality=kind, seed=3)
    for index in range(len(source)):
        fraction = source.lesion_fraction(index)
        assert 0.002 <= fraction <= 0.15
        assert source.read(index).mask.sum() == max(1, round(fraction * 128 * 128))


def test_lesion_areas_are_log_uniform() -> None:
    source = PhantomSource(2000, size=16)
    logs = np.log([source.lesion_fraction(i) for i in range(len(source))])
    low, high = np.log(0.002), np.log(0.15)
    counts, _ = np.histogram(logs, bins=8, range=(low, high))
    # 250 expected in each; five standard deviations of a binomial are 74.
    assert counts.sum() == 2000
    assert np.abs(counts - 250).max() < 74


@pytest.mark.parametrize("kind", KINDS)
def test_lesions_lie_on_the_body_and_in_one_piece(kind: str) -> None:
    source = PhantomSource(12, size=96, modality=kind)
    for index in range(len(source)):
        pair = source.read(index)
        inside = pair.image[pair.mask > 0].max(axis=1)
        assert np.mean(inside > 8) > 0.97, pair.name  # not on the black surround
        rows, columns = np.nonzero(pair.mask)
        middle = pair.mask[max(rows.min(), 0) : rows.max() + 1, columns.min() : columns.max() + 1]
        assert middle.mean() > 0.3, pair.name


def test_healthy_pairs_have_empty_masks() -> None:
    source = PhantomSource(40, size=32, modality="mixed", healthy=0.5)
    filled = [bool(source.read(i).mask.any()) for i in range(len(source))]
    assert filled == [source.lesion_fraction(i) > 0 for i in range(len(source))]
    assert 8 < sum(filled) < 32


@pytest.mark.parametrize("kind", KINDS)
def test_a_distractor_changes_the_picture_away_from_the_lesion_and_never_the_mask(kind: str) -> None:
    plain = PhantomSource(10, size=128, modality=kind, seed=1, healthy=1.0)
    crowded = PhantomSource(10, size=128, modality=kind, seed=1, healthy=1.0, distractor=1)
    for index in range(10):
        without, with_it = plain.read(index), crowded.read(index)
        assert not with_it.mask.any()
        changed = np.abs(with_it.image.astype(int) - without.image).max(axis=2) > 40
        assert changed.mean() > 0.0008, index


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_is_a_function_of_seed_and_index_alone(kind: str) -> None:
    source = PhantomSource(8, size=48, modality=kind, seed=5)
    forward = [digest(source.read(i)) for i in range(8)]
    backward = [digest(source.read(i)) for i in reversed(range(8))][::-1]
    assert forward == backward
    longer = PhantomSource(80, size=48, modality=kind, seed=5)
    assert [digest(longer.read(i)) for i in range(8)] == forward
    with ThreadPoolExecutor(4) as pool:
        assert [digest(p) for p in pool.map(source.read, range(8))] == forward
    assert len(set(forward)) == 8
    other = PhantomSource(8, size=48, modality=kind, seed=6)
    assert not {digest(other.read(i)) for i in range(8)} & set(forward)


def test_another_process_draws_the_same_bits() -> None:
    code = (
        "import hashlib, json\n"
        "from laworder.data.sources.phantom import PhantomSource\n"
        "s = PhantomSource(12, size=64, modality='mixed', seed=2, distractor=0.5)\n"
        "pairs = [s.read(i) for i in range(12)]\n"
        "print(json.dumps([hashlib.sha256(p.image.tobytes() + p.mask.tobytes()).hexdigest() for p in pairs]))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    source = PhantomSource(12, size=64, modality="mixed", seed=2, distractor=0.5)
    assert json.loads(out.stdout) == [digest(source.read(i)) for i in range(12)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_shows_the_same_scene(kind: str) -> None:
    small = PhantomSource(6, size=64, modality=kind, seed=4)
    large = PhantomSource(6, size=256, modality=kind, seed=4)
    for index in range(6):
        low, high = small.read(index), large.read(index)
        shrunk = Image.fromarray(high.image.squeeze()).resize((64, 64), Image.Resampling.BOX)
        a, b = np.asarray(shrunk, float).ravel(), low.image.astype(float).ravel()
        assert np.corrcoef(a, b)[0, 1] > 0.93
        if low.mask.sum() > 60:
            mask = np.asarray(Image.fromarray(high.mask).resize((64, 64), Image.Resampling.NEAREST))
            assert 2 * (mask & low.mask).sum() / (mask.sum() + low.mask.sum()) > 0.85


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_one_patient_are_alike(kind: str) -> None:
    """Otherwise a split by group would not matter."""
    source = PhantomSource(24, size=48, modality=kind, pairs_per_patient=4, healthy=1.0)
    thumbs = [np.asarray(source.read(i).image, float).ravel() for i in range(24)]
    thumbs = [(t - t.mean()) / t.std() for t in thumbs]
    same = [np.mean(thumbs[i] * thumbs[i + 1]) for i in range(0, 24, 4)]
    other = [np.mean(thumbs[i] * thumbs[i + 4]) for i in range(0, 20, 4)]
    assert len(set(source.groups)) == 6
    assert np.mean(same) > np.mean(other) + 0.05
    assert min(same) > 0.75


# Mean and standard deviation of the gray values, and a 4×4 thumbnail, of pair 1 at 64²: coarse, since the last bit of
# an exponential differs between processors.
GOLDEN: dict[str, dict[str, Any]] = {
    "colon": {
        "mean": 113.81,
        "std": 25.55,
        "centre": (25.11, 45.33),
        "thumb": [
            91.1,
            109.2,
            139.5,
            136.2,
            93.5,
            110.3,
            138.4,
            137.7,
            93.3,
            106.6,
            120.3,
            133.4,
            88.4,
            108.6,
            113.6,
            100.7,
        ],
    },
    "mr": {
        "mean": 59.75,
        "std": 59.06,
        "centre": (20.22, 25.44),
        "thumb": [13.1, 72.1, 70.4, 10.1, 39.8, 108.9, 125.8, 49.2, 38.7, 97.3, 116.0, 57.2, 11.8, 56.7, 70.5, 18.6],
    },
    "ct": {
        "mean": 48.08,
        "std": 68.59,
        "centre": (35.56, 18.67),
        "thumb": [0.9, 14.0, 16.7, 1.5, 67.3, 127.6, 66.2, 54.1, 57.2, 121.1, 127.0, 61.6, 1.0, 25.2, 26.5, 1.1],
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_golden_pictures(kind: str) -> None:
    pair = PhantomSource(4, size=64, modality=kind, seed=0).read(1)
    gray = pair.image.astype(float).mean(axis=2)
    golden = GOLDEN[kind]
    assert gray.mean() == pytest.approx(golden["mean"], abs=0.5)
    assert gray.std() == pytest.approx(golden["std"], abs=0.5)
    thumb = gray.reshape(4, 16, 4, 16).mean(axis=(1, 3))
    assert np.abs(thumb - np.array(golden["thumb"]).reshape(4, 4)).max() < 1.5
    rows, columns = np.nonzero(pair.mask)
    assert (rows.mean(), columns.mean()) == pytest.approx(golden["centre"], abs=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_speed(kind: str) -> None:
    """100 pictures a second of 256² on two cores are 20 ms of one; twice that here, since CI's cores are shared."""
    source = PhantomSource(30, modality=kind, distractor=0.5)
    source.read(0)
    start = time.process_time()
    for index in range(30):
        source.read(index)
    assert (time.process_time() - start) / 30 < 0.040


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"modality": "colno"}, "did you mean 'colon'"),
        ({"size": 8}, "size must be at least 16"),
        ({"count": 0}, "count must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"distractor": 1.5}, "distractor is a probability"),
        ({"healthy": -0.1}, "healthy is a probability"),
        ({"lesion_range": (0.2, 0.1)}, "lesion_range"),
        ({"lesion_range": (0.0, 0.1)}, "lesion_range"),
        ({"pairs_per_patient": 0}, "pairs_per_patient"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        PhantomSource(**{"count": 4, **arguments})


def test_no_pair_beyond_the_last() -> None:
    source = PhantomSource(3, size=16)
    for index in (3, -1):
        with pytest.raises(IndexError):
            source.read(index)
