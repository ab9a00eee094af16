"""What is known to be wrong with the research data is found in it; and nothing is found in pairs that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from laworder.data.audit import Duplicates, Fingerprint, align, find_duplicates, fingerprint
from laworder.data.audit.alignment import thumb
from laworder.data.audit.duplicates import COPY, NEAR, ORIENTATIONS, correlations
from laworder.data.parallel import over_cores
from laworder.data.sources.folder import FolderSource
from laworder.data.sources.images import read_image

pytestmark = pytest.mark.real_data


def prints(files: list[Path]) -> list[Fingerprint]:
    found: list[Fingerprint | None] = [None] * len(files)

    def put(index: int) -> None:
        found[index] = fingerprint(read_image(files[index]))

    over_cores(put, len(files))
    return [one for one in found if one is not None]


def duplicates(files: list[Path]) -> Duplicates:
    return find_duplicates(prints(files), mirrored=False)


def listed(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in (".jpg", ".png"))
    assert files
    return files


@pytest.mark.slow
def test_identical_frames_in_the_polyp_test_sets(shared_data: Path) -> None:
    sets = [shared_data / "polyps" / "TestDataset" / name / "images" for name in ("CVC-ColonDB", "ETIS-LaribPolypDB")]
    colon, etis = (listed(folder) for folder in sets)
    found = duplicates([*colon, *etis])
    inside = [sum(i < len(colon) for i in members) for members in found.identical]
    assert [n for n in inside if n == 0] == [0] * 3, "ETIS: three pairs"
    assert sum(n > 1 for n in inside) == 17, "ColonDB: seventeen groups"
    assert not [t for t in found.twins if (t.a < len(colon)) != (t.b < len(colon))]


@pytest.mark.slow
def test_brisc_images_that_cross_train_and_test(shared_data: Path) -> None:
    task = shared_data / "brisc2025" / "segmentation_task"
    train = [f for f in listed(task / "train" / "images") if "_me_" in f.name]
    test = [f for f in listed(task / "test" / "images") if "_me_" in f.name]
    found = duplicates([*train, *test])
    crossing = [m for m in found.identical if m[0] < len(train) <= m[-1]]
    assert len(crossing) >= 7


@pytest.mark.slow
def test_different_pairs_are_left_alone(shared_data: Path) -> None:
    """200 random pairs: of two hospitals' endoscopies, and of two kinds of tumour in the same plane."""
    polyps, brisc = shared_data / "polyps", shared_data / "brisc2025" / "segmentation_task" / "train" / "images"
    rng = np.random.default_rng(0)

    def some(files: list[Path]) -> list[Path]:
        return [files[i] for i in rng.permutation(len(files))[:100]]

    slices = listed(brisc)
    left = some(listed(polyps / "TrainDataset" / "image")) + some([f for f in slices if "_me_ax" in f.name])
    right = some(listed(polyps / "TestDataset" / "CVC-ColonDB" / "images"))
    right += some([f for f in slices if "_gl_ax" in f.name])
    assert alarms([*left, *right]) <= 1


def alarms(files: list[Path]) -> int:
    """Pairs (first half, second half) that are called twins, in any orientation."""
    pictures = np.stack([one.picture for one in prints(files)])
    half = len(files) // 2
    pairs = torch.stack([torch.arange(half), torch.arange(half, 2 * half)], dim=1)
    called = [correlations(pictures, pairs, name) >= (NEAR if name == "upright" else COPY) for name in ORIENTATIONS]
    return int(torch.stack(called).any(dim=0).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_pairs_of_one_dataset_are_left_alone(shared_data: Path, seed: int) -> None:
    """200 random pairs of slices in one plane, heads as alike as they come; a few pairs may be of one patient."""
    slices = listed(shared_data / "brisc2025" / "segmentation_task" / "train" / "images")
    rng = np.random.default_rng(seed)
    planes = [[f for f in slices if f.stem.split("_")[4] == plane] for plane in ("ax", "co", "sa")]
    drawn = [
        some[i] for some, count in zip(planes, (134, 134, 132), strict=True) for i in rng.permutation(len(some))[:count]
    ]
    assert alarms([*drawn[::2], *drawn[1::2]]) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("polyps/TestDataset/ETIS-LaribPolypDB/images", "polyps/TestDataset/ETIS-LaribPolypDB/masks"),
        ("polyps/TestDataset/CVC-ColonDB/images", "polyps/TestDataset/CVC-ColonDB/masks"),
        ("brisc2025/segmentation_task/test/images", "brisc2025/segmentation_task/test/masks"),
    ],
)
def test_a_shuffled_pairing_of_real_pairs_is_an_error_and_the_true_one_is_not(
    shared_data: Path, images: str, masks: str
) -> None:
    source = FolderSource(shared_data / images, shared_data / masks, check=False, progress=False)
    drawn = np.random.default_rng(0).permutation(len(source))[:64]
    pairs = [source.read(int(i)) for i in drawn]
    true = align([thumb(k, pair.image, pair.mask) for k, pair in enumerate(pairs)])
    assert not true.shuffled
    assert true.flipped is None
    other = np.random.default_rng(1).permutation(len(pairs))
    shuffled = align([thumb(k, pair.image, pairs[other[k]].mask) for k, pair in enumerate(pairs)])
    assert shuffled.shuffled
    upside = align([thumb(k, pair.image, pair.mask[::-1].copy()) for k, pair in enumerate(pairs)])
    assert upside.flipped == "upside down"


@pytest.mark.slow
def test_mirrored_slices_that_cross_train_and_test(shared_data: Path) -> None:
    """BRISC holds hundreds of slices twice, once mirrored; flipped back, they differ by what JPEG leaves."""
    task = shared_data / "brisc2025" / "segmentation_task"
    train = [f for f in listed(task / "train" / "images") if "_me_ax_" in f.name]
    test = [f for f in listed(task / "test" / "images") if "_me_ax_" in f.name]
    files = [*train, *test]
    found = find_duplicates(prints(files)).of_kind("mirrored")
    assert {twin.orientation for twin in found} == {"left to right"}
    crossing = [t for t in found if t.a < len(train) <= t.b]
    assert len(crossing) > 50
    for twin in crossing[:: len(crossing) // 20]:
        a, b = (read_image(files[i]).astype(int) for i in (twin.a, twin.b))
        assert np.abs(a[:, ::-1] - b).mean() < 3
