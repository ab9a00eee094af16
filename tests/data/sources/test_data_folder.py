"""Folders of images and masks: matched in every usual layout, and all that is wrong said at once."""

from __future__ import annotations

import os
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.data.pairs import Source
from laworder.data.sources.folder import FolderSource, scan
from laworder.data.sources.masks import MaskRule
from laworder.errors import UserError


def put(root: Path, *files: str, size: tuple[int, int] = (6, 4)) -> Path:
    """Pictures at the given paths: a ramp each, which is a valid mask too (two levels)."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.zeros(size[::-1], np.uint8)
        pixels[:, size[0] // 2 :] = 255
        Image.fromarray(pixels).save(path)
    return root


@pytest.mark.parametrize(
    "files",
    [
        ("images/a.png", "masks/a.png"),
        ("image/a.jpg", "mask/a.png"),
        ("imgs/a.JPG", "labels/a.TIF"),
        ("Images/a.png", "Ground Truth/a.bmp"),
        ("a.jpg", "a_mask.png"),
        ("a.jpg", "a-seg.png"),
        ("a.jpg", "a_label.png"),
        ("a.jpg", "a.gt.png"),
        ("a.jpg", "a_Segmentation.png"),
        ("images/a.png", "masks/a_mask.png"),
        ("train/images/p1/a.png", "train/masks/p1/a.png"),
        ("images/train/a.png", "masks/train/a.png"),
        ("a.jpg", "masks/a.png"),
        ("images/a_mask_b.png", "masks/a_mask_b.png"),
    ],
)
def test_layouts_in_one_folder(files: tuple[str, str], tmp_path: Path) -> None:
    found = scan(put(tmp_path, *files))
    assert found.problems == []
    assert [(p.image, p.mask) for p in found.pairs] == [(tmp_path / files[0], tmp_path / files[1])]


def test_two_folders_nested_and_mirrored(tmp_path: Path) -> None:
    put(tmp_path, "x/1/a.png", "x/2/a.png", "x/b.png", "y/1/a.png", "y/2/a_gt.png", "y/b.tif", "other/c.png")
    source = FolderSource(tmp_path / "x", str(tmp_path / "y"))
    assert source.names == ["1__a", "2__a", "b"]
    assert isinstance(source, Source)
    pair = source.read(1)
    assert (pair.name, pair.group) == ("2__a", "2__a")
    assert pair.image.shape == (4, 6, 1)
    assert np.array_equal(pair.mask, pair.image[..., 0] // 255)


def test_masks_inside_the_image_folder_are_no_images(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "drawn/a.png", "drawn/b.png")
    assert FolderSource(tmp_path, tmp_path / "drawn").names == ["a", "b"]


def test_one_folder_given_twice_is_one_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "a_mask.png")
    assert FolderSource(tmp_path, tmp_path).names == ["a"]


def test_leavings_and_other_files_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "a_mask.png", ".hidden.png", "__MACOSX/a.png", ".git/b.png")
    for name in ("Thumbs.db", "README.md", "._a.png", "labels.csv"):
        (tmp_path / name).write_text("no picture")
    assert FolderSource(tmp_path).names == ["a"]


def test_links_to_folders_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/a.png", "drawn/a.png")
    root = tmp_path / "data"
    root.mkdir()
    (root / "images").symlink_to(tmp_path / "elsewhere")
    (root / "masks").symlink_to(tmp_path / "drawn")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "elsewhere")
    (root / "again").symlink_to(root)
    assert FolderSource(root).names == ["a"]


def test_a_folder_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.png", "a_mask.png", "shut/b.png")
    scandir = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(UserError, match=r"shut: this folder cannot be opened \(Permission denied\)"):
        FolderSource(tmp_path)


def test_names_are_compared_after_normalisation(tmp_path: Path) -> None:
    put(tmp_path, "images/" + unicodedata.normalize("NFC", "é") + ".png")
    put(tmp_path, "masks/" + unicodedata.normalize("NFD", "é") + ".png")
    assert FolderSource(tmp_path).names == ["é"]


def test_names_are_unique_and_safe_whatever_the_files_are_called(tmp_path: Path) -> None:
    for stem in ("a b", "a+b", "a/b", "x:y", "z..", "A B"):
        put(tmp_path, f"images/{stem}.png", f"masks/{stem}.png")
    names = FolderSource(tmp_path).names
    assert len({name.lower() for name in names}) == 6
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzAB0123456789_.-") for name in names)
    assert not any(name.startswith(".") for name in names)


def test_everything_wrong_is_said_in_one_error(tmp_path: Path) -> None:
    put(tmp_path, "images/good.png", "masks/good.png")
    put(tmp_path, "images/lonely.png", "masks/orphan.png")
    put(tmp_path, "images/twice.png", "images/twice.jpg", "masks/twice.png")
    put(tmp_path, "images/double.png", "masks/double.png", "masks/double_gt.png")
    put(tmp_path, "images/size.png", "images/both.png", "images/torn.png", "masks/torn.png", "images/levels.png")
    put(tmp_path, "masks/size.png", size=(8, 4))
    (tmp_path / "images/both.png").write_bytes(b"junk")
    (tmp_path / "masks/both.png").write_bytes(b"")
    (tmp_path / "images/torn.png").write_bytes((tmp_path / "images/torn.png").read_bytes()[:40])
    Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6) * 10).save(tmp_path / "masks/levels.png")
    with pytest.raises(UserError) as error:
        FolderSource(tmp_path)
    lines = str(error.value).split("\n")
    assert lines[0].startswith(f"{tmp_path}: 9 problems with images and masks")
    said = "\n".join(sorted(line.strip().replace(str(tmp_path) + "/", "") for line in lines[1:]))
    for expected in (
        "images/lonely.png: no mask of that name",
        "masks/orphan.png: no image of that name",
        "images/twice.jpg, images/twice.png: 2 images of one name",
        "masks/double.png, masks/double_gt.png: 2 masks of one name",
        "masks/size.png: 8×4 pixels, but its image images/size.png has 6×4",
        "images/both.png: not readable",
        "masks/both.png: not readable",
        "images/torn.png: not readable",
        "masks/levels.png: a mask with too many levels",
    ):
        assert expected in said
    assert len(lines) == 10
    lenient = scan(tmp_path)
    assert [p.key for p in lenient.pairs] == ["good"]
    assert len(lenient.problems) == 9


def test_without_the_check_a_bad_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "a_mask.png")
    (tmp_path / "a_mask.png").write_bytes(b"junk")
    source = FolderSource(tmp_path, check=False)
    with pytest.raises(UserError, match=r"a_mask\.png: not readable"):
        source.read(0)


def test_empty_and_absent_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        FolderSource(tmp_path / "none")
    with pytest.raises(UserError, match="no such folder"):
        FolderSource(tmp_path, tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not a folder"):
        FolderSource(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: holds no images"):
        FolderSource(tmp_path / "empty")
    (tmp_path / "empty" / "scan.dcm").write_text("")
    with pytest.raises(UserError, match=r"holds no images in a format that is read here \(but 1 × \.dcm"):
        FolderSource(tmp_path / "empty")
    put(tmp_path, "only/masks/a.png")
    with pytest.raises(UserError, match="only: holds no images"):
        FolderSource(tmp_path / "only")


def test_groups(tmp_path: Path) -> None:
    for file in ("case_1/a", "case_1/b", "case_2/a", "c"):
        put(tmp_path, f"images/{file}.png", f"masks/{file}.png")
    assert FolderSource(tmp_path).groups == ["c", "case_1__a", "case_1__b", "case_2__a"]
    assert FolderSource(tmp_path, group="folder").groups == [".", "case_1", "case_1", "case_2"]
    assert FolderSource(tmp_path, group=r"^(case_\d|c)").groups == ["c", "case_1", "case_1", "case_2"]
    for group, says in ((r"(case_\d)", "is not found in c"), ("case", "no parentheses"), ("(", "nor a regular expr")):
        with pytest.raises(UserError, match=says):
            FolderSource(tmp_path, group=group)


MARK = np.zeros((4, 6), np.uint8)
MARK[0, :2] = 255  # a corner: no turn or mirror leaves it where it is


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mask_says", ["nothing", "the same", "drawn upright"])
def test_exif_turns_image_and_mask_alike(orientation: int, mask_says: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(MARK).save(tmp_path / "a.png", exif=exif)
    upright_size = orientation < 5
    drawn = Image.fromarray(MARK)
    if mask_says == "drawn upright":
        if upright_size:
            return  # the sizes do not tell, so the mask follows its image: the first case
        drawn = Image.fromarray(FolderSource(put_mask(tmp_path, drawn)).read(0).image[..., 0])
    put_mask(tmp_path, drawn, exif if mask_says == "the same" else None)
    pair = FolderSource(tmp_path).read(0)
    assert pair.mask.shape == ((4, 6) if upright_size else (6, 4))
    assert np.array_equal(pair.mask * 255, pair.image[..., 0])


def put_mask(root: Path, picture: Image.Image, exif: Image.Exif | None = None) -> Path:
    picture.save(root / "a_mask.png", **({"exif": exif} if exif is not None else {}))
    return root


def test_classes_are_read_when_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    classes = np.arange(24, dtype=np.uint8).reshape(4, 6) % 4
    Image.fromarray(classes).save(tmp_path / "a_mask.png")
    with pytest.raises(UserError, match="class indices"):
        FolderSource(tmp_path)
    assert np.array_equal(FolderSource(tmp_path, rule=MaskRule(index=True)).read(0).mask, classes)


def test_a_source_travels_to_loader_workers(tmp_path: Path) -> None:
    source = FolderSource(put(tmp_path, "a.png", "a_mask.png"))
    assert pickle.loads(pickle.dumps(source)).read(0).name == "a"


@pytest.mark.real_data
def test_real_polyps_are_all_read(shared_data: Path) -> None:
    found = scan(shared_data / "polyps" / "TestDataset", progress=False)
    assert found.problems == []
    assert len(found.pairs) == 196 + 380
    counts = scan(shared_data / "polyps" / "TrainDataset", decode=False)
    assert (len(counts.pairs), counts.problems) == (1450, [])
    brisc = scan(shared_data / "brisc2025" / "segmentation_task", decode=False)
    assert (len(brisc.pairs), brisc.problems) == (3933 + 860, [])
