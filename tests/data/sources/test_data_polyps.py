"""Polyp collections: every layout in which they are downloaded, and the paper's pools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.polyps import polyps
from laworder.data.sources.videos import video_starts
from laworder.errors import UserError

PRANET = {
    "TrainDataset/image": "TrainDataset/masks",
    "TestDataset/Kvasir/images": "TestDataset/Kvasir/masks",
    "TestDataset/CVC-ClinicDB/images": "TestDataset/CVC-ClinicDB/masks",
    "TestDataset/CVC-300/images": "TestDataset/CVC-300/masks",
    "TestDataset/ETIS-LaribPolypDB/images": "TestDataset/ETIS-LaribPolypDB/masks",
    "TestDataset/CVC-ColonDB/images": "TestDataset/CVC-ColonDB/masks",
}


def fill(images: Path, masks: Path, stems: tuple[str, ...] = ("1", "2", "10"), suffix: str = "png") -> None:
    for folder in (images, masks):
        folder.mkdir(parents=True)
    for number, stem in enumerate(stems):
        pixels = np.random.default_rng(abs(hash(str(images.name))) + number).integers(0, 256, (16, 18, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(images / f"{stem}.{suffix}")
        mask = np.zeros((16, 18), dtype=np.uint8)
        mask[3:9, 4 : 8 + number] = 255
        Image.fromarray(mask).save(masks / f"{stem}.{suffix}", quality=90)


def pranet(root: Path, without: tuple[str, ...] = ()) -> Path:
    for images, masks in PRANET.items():
        if not any(word in images for word in without):
            fill(root / images, root / masks)
    return root


def test_all_sets_and_the_joined_pools(tmp_path: Path) -> None:
    head = prepare(polyps(pranet(tmp_path / "from")), tmp_path / "to", progress=False)
    assert head["counts"]["pools"] == {
        "law": 3, "law-test": 6, "order": 9,
        "train": 3, "Kvasir": 3, "ClinicDB": 3, "CVC-300": 3, "ETIS": 3, "ColonDB": 3,
    }  # fmt: skip
    prepared = PreparedSource(tmp_path / "to", "order")
    assert prepared.names == [f"{pool}-{stem}" for pool in ("train", "etis", "colondb") for stem in ("1", "2", "10")]
    assert prepared.read(2).mask.sum() == 6 * 6
    assert head["classes"] == ["background", "polyp"]


def test_absent_sets_take_their_pools_with_them_and_it_is_said(tmp_path: Path) -> None:
    raw = polyps(pranet(tmp_path / "from", without=("Kvasir", "ETIS")))
    head = prepare(raw, tmp_path / "to", progress=False)
    assert set(head["counts"]["pools"]) == {"law", "train", "ClinicDB", "CVC-300", "ColonDB"}
    assert "pools left out, because not all of their sets are here: law-test, order" in head["notes"]
    assert "train has 3 pairs, its release 1450" in head["notes"]


def test_inside_a_folder_of_the_archive(tmp_path: Path) -> None:
    pranet(tmp_path / "outer" / "Polyps")
    assert len(polyps(tmp_path / "outer").units) == 18


def test_kvasir_seg_with_its_jpeg_masks(tmp_path: Path) -> None:
    fill(tmp_path / "from" / "images", tmp_path / "from" / "masks", ("cju1", "cju2"), suffix="jpg")
    head = prepare(polyps(tmp_path / "from"), tmp_path / "to", progress=False)
    assert head["counts"]["pools"] == {"kvasir-seg": 2}
    assert set(np.unique(PreparedSource(tmp_path / "to").read(1).mask).tolist()) == {0, 1}
    # JPEG originals are kept pixel by pixel.
    with Image.open(tmp_path / "from" / "images" / "cju1.jpg") as original:
        np.testing.assert_array_equal(PreparedSource(tmp_path / "to").read(0).image, np.asarray(original))


@pytest.mark.parametrize("place", ["", "TIF"])
def test_cvc_clinicdb_with_its_sequences(tmp_path: Path, place: str) -> None:
    root = tmp_path / "from"
    fill(root / place / "Original", root / place / "Ground Truth", ("1", "2", "26"), suffix="tif")
    (root / "metadata.csv").write_text("frame_id,sequence_id\n1,1\n2,1\n26,2\n")
    prepare(polyps(root), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to", "cvc-clinicdb")
    assert prepared.names == ["cvc-clinicdb-1", "cvc-clinicdb-2", "cvc-clinicdb-26"]
    assert prepared.groups == [f"cvc-clinicdb-sequence-{n:02d}" for n in (1, 1, 2)]


def test_a_table_of_sequences_that_is_none_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "Original", tmp_path / "Ground Truth", ("1",), suffix="tif")
    (tmp_path / "metadata.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"metadata.csv: not a table with whole frame_id"):
        polyps(tmp_path)


def test_frames_in_a_row_that_look_alike_are_one_group(tmp_path: Path) -> None:
    """Three videos of four drifting frames; the stills of Kvasir-SEG beside them stay apart, alike or not."""
    rng = np.random.default_rng(0)
    scenes = [rng.integers(0, 256, (6, 6, 3), dtype=np.uint8) for _ in range(3)]
    for folder in ("image", "masks"):
        (tmp_path / "from" / "TrainDataset" / folder).mkdir(parents=True)
    for number in range(12):
        frame = np.asarray(Image.fromarray(scenes[number // 4]).resize((60, 60), Image.Resampling.BICUBIC))
        frame = np.clip(np.roll(frame, number % 4, axis=1) + rng.integers(0, 9, frame.shape), 0, 255).astype(np.uint8)
        for stem in (str(number + 1), f"cju{number:02d}"):
            Image.fromarray(frame ^ (stem[0] == "c")).save(tmp_path / f"from/TrainDataset/image/{stem}.png")
            Image.fromarray(np.eye(60, dtype=np.uint8) * 255).save(tmp_path / f"from/TrainDataset/masks/{stem}.png")
    prepare(polyps(tmp_path / "from"), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    group = dict(zip(prepared.names, prepared.groups, strict=True))
    assert [group[f"train-{n}"] for n in range(1, 13)] == [f"train-{first}" for first in (1, 5, 9) for _ in range(4)]
    assert [group[f"train-cju{n:02d}"] for n in range(12)] == [f"train-cju{n:02d}" for n in range(12)]


@pytest.mark.real_data
def test_videos_are_found_in_real_frames(shared_data: Path) -> None:
    """CVC-ClinicDB's first sequences begin at frames 1, 26, 51, 68 …: the cuts that can be seen are found."""
    folder = shared_data / "polyps" / "TrainDataset" / "image"
    numbers = sorted(int(file.stem) for file in folder.glob("*.jpg") if file.stem.isdigit() and int(file.stem) < 76)
    starts = video_starts([folder / f"{number}.jpg" for number in numbers])
    found = {number for number, first in zip(numbers, starts, strict=True) if first}
    assert {1, 26, 51, 68} <= found
    assert len(found) <= 8


def test_missing_partners_are_all_named(tmp_path: Path) -> None:
    root = pranet(tmp_path)
    (root / "TrainDataset/masks/2.png").unlink()
    (root / "TestDataset/CVC-300/images/10.png").unlink()
    with pytest.raises(UserError, match="2 problems") as caught:
        polyps(root)
    assert "TrainDataset/image/2.png: no mask of that name" in str(caught.value)
    assert "CVC-300/masks/10.png: no image of that name" in str(caught.value)


@pytest.mark.real_data
def test_the_papers_pools_on_the_real_collection(shared_data: Path) -> None:
    raw = polyps(shared_data / "polyps")
    pools = raw.pools([{"name": unit.key, **unit.extra} for unit in raw.units])
    assert {pool: len(names) for pool, names in pools.items()} == {
        "law": 1450, "order": 2026, "train": 1450, "ETIS": 196, "ColonDB": 380
    }  # fmt: skip
    origins = [unit.extra.get("origin") for unit in raw.units]
    assert (origins.count("Kvasir-SEG"), origins.count("CVC-ClinicDB")) == (900, 550)


@pytest.mark.real_data
def test_real_pictures_arrive_pixel_by_pixel(shared_data: Path, tmp_path: Path) -> None:
    """A few pairs of each set, by links: the layout is real, the time is short."""
    for images, masks in PRANET.items():
        files = sorted((shared_data / "polyps" / images).glob("*"))[:4] if "300" not in images else []
        for file in files:
            for folder, real in ((images, file), (masks, shared_data / "polyps" / masks / f"{file.stem}.png")):
                (tmp_path / "from" / folder).mkdir(parents=True, exist_ok=True)
                (tmp_path / "from" / folder / real.name).symlink_to(real)
    raw = polyps(tmp_path / "from")
    head = prepare(raw, tmp_path / "to", progress=False)
    assert head["counts"]["pools"]["order"] == 12
    prepared = PreparedSource(tmp_path / "to", verify=True)
    for index, unit in enumerate(raw.units):
        pair = prepared.read(index)
        with Image.open(unit.files[0]) as image, Image.open(unit.files[1]) as mask:
            np.testing.assert_array_equal(pair.image, np.asarray(image.convert("RGB")))
            np.testing.assert_array_equal(pair.mask, np.asarray(mask.convert("L")) > 127)
