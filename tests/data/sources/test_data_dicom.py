"""DICOM images with segmentations, structure sets and mask files → pairs. All files are made here."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_files import (
    ENHANCED_CT,
    HU,
    SC,
    US,
    boxes,
    directory,
    head,
    image,
    made,
    save,
    scan_of,
    segmentation,
    series,
    source_item,
    structures,
    uid,
    with_pixels,
)
from PIL import Image
from pydicom.uid import UID

from laworder.cli import main
from laworder.data.pairs import Pair
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.dicom import DicomRule, dicom
from laworder.errors import UserError


def pairs(folder: Path, **rule: Any) -> list[Pair]:
    raw = dicom(folder, DicomRule(**rule))
    return [item.pair for unit in raw.units for item in raw.read(unit)]


def extras(folder: Path, **rule: Any) -> list[Any]:
    raw = dicom(folder, DicomRule(**rule))
    return [item.extra for unit in raw.units for item in raw.read(unit)]


def refused(folder: Path, **rule: Any) -> str:
    """What is said where a source cannot be prepared, whenever that turns out."""
    with pytest.raises(UserError) as caught:
        pairs(folder, **rule)
    return str(caught.value)


def axial(folder: Path, masks: np.ndarray | None = None, **more: Any) -> tuple[np.ndarray, list[Any]]:
    """A CT series of `masks`."""
    masks = boxes() if masks is None else masks
    return masks, series(folder, scan_of(masks), **{**HU, **more})


def test_a_segmentation_whose_frames_are_out_of_order(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    order = [2, 0, 3, 1]
    segmentation(tmp_path / "seg.dcm", [(masks[k], 1, slices[k]) for k in order])
    found = pairs(tmp_path, window="-100,300")
    # Slices are counted from the head: the last file lies highest.
    for pair, k in zip(found, range(3, -1, -1), strict=True):
        np.testing.assert_array_equal(pair.mask, masks[k])
        hounsfield = scan_of(masks)[k].astype(float) - 1000
        np.testing.assert_allclose(pair.image[..., 0], np.clip((hounsfield + 100) / 400 * 255, 0, 255), atol=0.51)
    assert [pair.name for pair in found] == [f"p0001-s01-{k:03d}" for k in range(4)]
    assert {pair.group for pair in found} == {"p0001"}
    known = extras(tmp_path)[0]
    assert known == {
        "volume": "p0001-s01",
        "slice": 0,
        "modality": "CT",
        "plane": "axial",
        "spacing_mm": [1.0, 1.0],
        "slice_mm": 3.0,
    }


@pytest.mark.parametrize(("named", "placed"), [(True, False), (False, True)])
def test_frames_find_their_slices_by_name_or_by_place(tmp_path: Path, named: bool, placed: bool) -> None:
    masks, slices = axial(tmp_path / "ct", boxes(rows=7, columns=5)[:, :7, :5] | np.eye(7, 5, dtype=np.uint8))
    segmentation(tmp_path / "s", [(masks[k], 1, slices[k]) for k in (3, 1)], named=named, placed=placed)
    found = pairs(tmp_path)
    np.testing.assert_array_equal([pair.mask for pair in found], masks[[3, 1]])


def test_frames_of_an_object_that_names_all_slices_for_each_of_them(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    seg = segmentation(tmp_path / "s.dcm", [(masks[k], 1, slices[k]) for k in range(4)])
    for groups in seg.PerFrameFunctionalGroupsSequence:
        groups.DerivationImageSequence[0].SourceImageSequence = [source_item(one) for one in slices]
    save(seg, tmp_path / "s.dcm")
    np.testing.assert_array_equal([pair.mask for pair in pairs(tmp_path)], masks[::-1])


def test_another_frame_of_reference_is_refused(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    segmentation(tmp_path / "s.dcm", [(masks[k], 1, slices[k]) for k in (0, 1)], FrameOfReferenceUID=uid("elsewhere"))
    assert "s.dcm: 2 of its frames (1, 2) have another frame of reference" in refused(tmp_path)
    segmentation(tmp_path / "s.dcm", [(masks[0], 1, slices[0])], named=False, FrameOfReferenceUID=uid("elsewhere"))
    assert "s.dcm: 1 of its frames (1) name no slice, and lie on none" in refused(tmp_path)


def test_frames_that_lie_elsewhere_or_nowhere(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    away = made()
    away.update(slices[1])
    away.ImagePositionPatient = [0, 0, 1000]
    segmentation(tmp_path / "far.dcm", [(masks[1], 1, away)])
    other = head("1.2.840.10008.5.1.4.1.1.2", "lost", patient="other")
    segmentation(tmp_path / "lost.dcm", [(masks[1], 1, other)])
    segmentation(tmp_path / "bare.dcm", [(masks[1], 1, slices[1])], named=False, placed=False)
    tilted = made()
    tilted.update(slices[1])
    tilted.ImageOrientationPatient = [1, 0, 0, 0, 0, -1]
    segmentation(tmp_path / "across.dcm", [(masks[1], 1, tilted)])
    problems = refused(tmp_path)
    assert "4 problems" in problems
    assert "far.dcm: 1 of its frames (1) lie elsewhere than the slices that they name" in problems
    assert "lost.dcm: 1 of its frames (1) name images that are not here" in problems
    assert "bare.dcm: 1 of its frames (1) name several slices and have no position" in problems
    assert "across.dcm: 1 of its frames (1) lie across the slices that they name" in problems


def test_slices_that_share_a_place_must_be_named(tmp_path: Path) -> None:
    """Phases of a heart, or echoes: one series, several images in each place."""
    masks, slices = axial(tmp_path / "ct", ImagePositionPatient=[0, 0, 9])
    segmentation(tmp_path / "s.dcm", [(masks[1], 1, slices[1])], named=False)
    assert "lie on slices that share a place and name none" in refused(tmp_path)
    segmentation(tmp_path / "s.dcm", [(masks[1], 1, slices[1])])
    (pair,) = pairs(tmp_path)
    assert (pair.name, pair.mask.tolist()) == ("p0001-s01-001", masks[1].tolist())


def test_several_classes_and_segments_that_do_not_count(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    cyst = np.roll(masks, 3, axis=2)
    body = np.ones_like(masks)
    frames = [(m[k], n, slices[k]) for n, m in enumerate((body, cyst, masks), start=1) for k in range(4)]
    segmentation(tmp_path / "s.dcm", frames, labels=("Body", "Cyst", "Tumor 1"))
    # Which of them is the lesion is not guessed.
    assert "3 labels (Body, Cyst, Tumor 1): say which are lesion with --dicom.segments" in refused(tmp_path)
    raw = dicom(tmp_path, DicomRule(segments=("tumor*=tumour", "2=cyst")))
    assert raw.classes == ("background", "tumour", "cyst")
    found = [item.pair.mask for unit in raw.units for item in raw.read(unit)]
    expected = np.where(masks > 0, 1, np.where(cyst > 0, 2, 0))[::-1]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        [p.mask for p in pairs(tmp_path, segments=("cyst", "Tumor 1"))], (expected > 0).astype(np.uint8)
    )
    np.testing.assert_array_equal([p.mask for p in pairs(tmp_path, segments=("*",))], body)
    assert "no segment or region is named 'tumoor'; did you mean 'Tumor 1'?" in refused(tmp_path, segments=("tumoor",))
    assert "write LABEL or LABEL=CLASS, not '=x'" in refused(tmp_path, segments=("=x",))


def test_fractional_segments_and_label_maps(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "a" / "ct")
    soft = masks * 200 + np.roll(masks, 9, axis=2) * 100
    segmentation(tmp_path / "a" / "s.dcm", [(soft[k], 1, slices[k]) for k in range(4)], kind="FRACTIONAL")
    np.testing.assert_array_equal([p.mask for p in pairs(tmp_path / "a")], masks[::-1])
    masks, slices = axial(tmp_path / "b" / "ct")
    numbers = masks * 2 + np.roll(masks, 9, axis=2)
    frames = [(numbers[k], 0, slices[k]) for k in range(4)]
    segmentation(tmp_path / "b" / "s.dcm", frames, kind="LABELMAP", labels=("Other", "Lesion"))
    np.testing.assert_array_equal([p.mask for p in pairs(tmp_path / "b", segments=("lesion",))], (numbers >= 2)[::-1])
    segmentation(tmp_path / "b" / "s.dcm", frames, kind="LABELMAP", labels=("Lesion",))
    assert "numbers of segments that it does not describe" in refused(tmp_path / "b")


def test_multi_frame_images_with_their_own_rescale_and_window(tmp_path: Path) -> None:
    """Enhanced CT: geometry, rescale and window of each frame in its functional groups."""
    masks = boxes()
    stored = np.stack([(scan_of(masks)[k] * 2 // (k + 1)).astype(np.uint16) for k in range(4)])
    whole = head(ENHANCED_CT, "whole", Modality="CT", FrameOfReferenceUID=uid("space", 1))
    with_pixels(whole, stored, frames=4)
    whole.SharedFunctionalGroupsSequence = [
        made(
            PixelMeasuresSequence=[made(PixelSpacing=[0.5, 0.75], SliceThickness=2)],
            PlaneOrientationSequence=[made(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])],
        )
    ]
    whole.PerFrameFunctionalGroupsSequence = [
        made(
            PlanePositionSequence=[made(ImagePositionPatient=[0, 0, -2.0 * k])],
            PixelValueTransformationSequence=[made(RescaleSlope=(k + 1) / 2, RescaleIntercept=-1000)],
            FrameVOILUTSequence=[made(WindowCenter=100, WindowWidth=[200 + k])],
        )
        for k in range(4)
    ]
    save(whole, tmp_path / "whole.dcm")
    seg = segmentation(tmp_path / "s.dcm", [(masks[k], 1, whole) for k in (3, 2, 1, 0)])
    for k, groups in zip((3, 2, 1, 0), seg.PerFrameFunctionalGroupsSequence, strict=True):
        groups.DerivationImageSequence = [made(SourceImageSequence=[source_item(whole, k + 1)])]
    save(seg, tmp_path / "s.dcm")
    found = pairs(tmp_path)
    np.testing.assert_array_equal([pair.mask for pair in found], masks)
    for k, pair in enumerate(found):
        hounsfield = stored[k] * ((k + 1) / 2) - 1000
        width = 200 + k
        seen = np.clip(((hounsfield - 99.5) / (width - 1) + 0.5) * 255, 0, 255)
        np.testing.assert_allclose(pair.image[..., 0], seen, atol=0.51)
    assert extras(tmp_path)[0]["spacing_mm"] == [0.5, 0.75]
    assert extras(tmp_path)[0]["slice_mm"] == 2


def test_frames_on_another_grid_are_sampled(tmp_path: Path) -> None:
    """A segmentation of a part of the slice, at twice its resolution."""
    masks, slices = axial(tmp_path / "ct")
    part = np.repeat(np.repeat(masks[:, 2:18, 4:28], 2, axis=1), 2, axis=2)
    seg = segmentation(tmp_path / "s.dcm", [(part[k], 1, slices[k]) for k in range(4)])
    shared = seg.SharedFunctionalGroupsSequence[0]
    shared.PixelMeasuresSequence[0].PixelSpacing = [0.5, 0.5]
    for k, groups in enumerate(seg.PerFrameFunctionalGroupsSequence):
        groups.PlanePositionSequence[0].ImagePositionPatient = [3.75, 1.75, 3.0 * k]
    save(seg, tmp_path / "s.dcm")
    np.testing.assert_array_equal([pair.mask for pair in pairs(tmp_path)], masks[::-1])


def corners(box: tuple[float, float, float, float], z: float) -> np.ndarray:
    """A rectangle (top, left, bottom, right) of an axial slice with pixels of 1 mm."""
    top, left, bottom, right = box
    return np.array([[left, top, z], [right, top, z], [right, bottom, z], [left, bottom, z]])


def test_structure_sets_with_holes(tmp_path: Path) -> None:
    _, slices = axial(tmp_path / "ct")
    space = slices[0].FrameOfReferenceUID
    outer, hole = corners((2.5, 3.5, 15.5, 20.5), 3.0), corners((5.5, 8.5, 9.5, 12.5), 3.0)
    expected = np.zeros((20, 30), np.uint8)
    expected[3:16, 4:21] = 1
    expected[6:10, 9:13] = 0
    for named in (slices[1], None):
        structures(tmp_path / "rt.dcm", {"GTV": [(outer, named), (hole[::-1], named)]}, space=space)
        (pair,) = pairs(tmp_path)
        assert pair.name == "p0001-s01-002"
        np.testing.assert_array_equal(pair.mask, expected)
    # A keyhole: one contour that goes in to the hole, and out again by the same way.
    keyhole = np.concatenate([outer, outer[:1], hole[::-1], hole[-1:]])
    structures(tmp_path / "rt.dcm", {"GTV": [(keyhole, slices[1])]}, space=space)
    np.testing.assert_array_equal(pairs(tmp_path)[0].mask, expected)


def test_structures_that_fit_nowhere(tmp_path: Path) -> None:
    _, slices = axial(tmp_path / "ct")
    space = slices[0].FrameOfReferenceUID
    box = (2.5, 3.5, 15.5, 20.5)
    structures(tmp_path / "between.dcm", {"GTV": [(corners(box, 100.0), None)]}, space=space)
    structures(tmp_path / "other.dcm", {"GTV": [(corners(box, 3.0), slices[1])]}, space=uid("elsewhere"))
    bent = corners(box, 3.0)
    bent[:, 2] += [1, -1, 1, -1]
    structures(tmp_path / "bent.dcm", {"GTV": [(bent, slices[1])]}, space=space)
    problems = refused(tmp_path)
    assert "between.dcm: 1 of its contours (1) name no slice, and lie on none" in problems
    assert "other.dcm: 1 of its contours (1) have another frame of reference" in problems
    assert "bent.dcm: 1 of its contours (1) do not lie in one plane" in problems
    assert "3 problems" in problems


def test_of_two_series_in_one_place_the_one_that_is_named(tmp_path: Path) -> None:
    """Before and after contrast: objects that name no image, but the series."""
    masks, slices = axial(tmp_path / "before")
    _, other = axial(tmp_path / "after", series="2")
    space = str(slices[0].FrameOfReferenceUID)
    box = corners((2.5, 3.5, 15.5, 20.5), 3.0)
    rt = structures(tmp_path / "drawn.dcm", {"GTV": [(box, None)]}, space=space)
    assert "lie on slices of several series and name none of them" in refused(tmp_path)
    listed = made(SeriesInstanceUID=other[0].SeriesInstanceUID, ContourImageSequence=[source_item(s) for s in other])
    study = made(RTReferencedSeriesSequence=[listed])
    rt.ReferencedFrameOfReferenceSequence = [made(FrameOfReferenceUID=space, RTReferencedStudySequence=[study])]
    save(rt, tmp_path / "drawn.dcm")
    (unit,) = dicom(tmp_path).units
    assert {file.parent.name for file in unit.files[:4]} == {"after"}
    seg = segmentation(tmp_path / "drawn.dcm", [(masks[1], 1, slices[1])], named=False)
    seg.ReferencedSeriesSequence = [made(SeriesInstanceUID=slices[0].SeriesInstanceUID)]
    save(seg, tmp_path / "drawn.dcm")
    (unit,) = dicom(tmp_path).units
    assert {file.parent.name for file in unit.files[:4]} == {"before"}


def test_points_and_lines_mark_nothing(tmp_path: Path) -> None:
    _, slices = axial(tmp_path / "ct")
    point, line = np.zeros((1, 3)), np.array([[0, 0, 0], [5, 5, 0], [9, 9, 0.0]])
    structures(tmp_path / "p.dcm", {"a": [(point, slices[0])]}, space=None, kind="POINT")
    structures(tmp_path / "l.dcm", {"a": [(line, slices[0])]}, space=None)
    assert "nothing is drawn on any" in refused(tmp_path)


def test_mask_pictures_beside_images(tmp_path: Path) -> None:
    masks, _ = axial(tmp_path / "ct")
    for k in range(3):
        Image.fromarray(masks[k] * 255).save(tmp_path / "ct" / f"{k:03d}_mask.png")
    np.testing.assert_array_equal([pair.mask for pair in pairs(tmp_path)], masks[2::-1])
    # Apart from the images; a name without a partner is told, and so is one of another size.
    (tmp_path / "drawn" / "ct").mkdir(parents=True)
    for k in range(3):
        (tmp_path / "ct" / f"{k:03d}_mask.png").rename(tmp_path / "drawn" / "ct" / f"{k:03d}.png")
    np.testing.assert_array_equal(
        [pair.mask for pair in pairs(tmp_path / "ct", masks=tmp_path / "drawn" / "ct")], masks[2::-1]
    )
    Image.fromarray(masks[0]).save(tmp_path / "drawn" / "ct" / "strange.png")
    assert "strange.png: no image of that name" in refused(tmp_path / "ct", masks=tmp_path / "drawn" / "ct")
    (tmp_path / "drawn" / "ct" / "strange.png").unlink()
    Image.fromarray(masks[0][:5]).save(tmp_path / "drawn" / "ct" / "000.png")
    assert "000.png: 30×5 pixels, but its image" in refused(tmp_path / "ct", masks=tmp_path / "drawn" / "ct")


def test_files_named_by_uids_and_masks_that_are_dicom(tmp_path: Path) -> None:
    masks = boxes()
    for k in range(3):
        image(tmp_path / "images" / f"1.2.840.{k}", scan_of(masks)[k], InstanceNumber=k, **HU)
        image(tmp_path / "masks" / f"1.2.840.{k}", masks[k] * 3)
    found = pairs(tmp_path)
    np.testing.assert_array_equal([pair.mask for pair in found], masks[:3])
    np.testing.assert_array_equal([p.mask for p in pairs(tmp_path, segments=("1=a", "3=b"))], masks[:3] * 2)


def test_a_stack_of_masks_for_a_multi_frame_image(tmp_path: Path) -> None:
    masks = boxes()
    image(tmp_path / "cine.dcm", scan_of(masks).astype(np.uint8), frames=4, SOPClassUID=US, Modality="US")
    first, *rest = (Image.fromarray(mask * 255) for mask in masks)
    first.save(tmp_path / "cine_mask.tif", save_all=True, append_images=rest)
    np.testing.assert_array_equal([pair.mask for pair in pairs(tmp_path)], masks)
    first.save(tmp_path / "cine_mask.tif", save_all=True, append_images=rest[:1])
    assert "cine_mask.tif: 2 frames, but its image has 4" in refused(tmp_path)


def test_one_image_twice_and_one_study_without_a_patient(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct", PatientID=None)
    segmentation(tmp_path / "s.dcm", [(masks[1], 1, slices[1])], patient="4711")
    raw = dicom(tmp_path)
    assert "images without a PatientID are grouped by study" in raw.notes
    shutil.copy(tmp_path / "ct" / "001.dcm", tmp_path / "ct" / "copy.dcm")
    problems = refused(tmp_path)
    assert "001.dcm" in problems
    assert "copy.dcm: one image 2 times; keep one" in problems


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "ct")
    segmentation(tmp_path / "seg.dcm", [(masks[1], 1, slices[1])])
    whole = (tmp_path / "ct" / "000.dcm").read_bytes()
    (tmp_path / "ct" / "short.dcm").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "ct" / "text.dcm").write_text("no DICOM")
    (tmp_path / "ct" / "empty.dcm").write_bytes(b"")
    packed = image(tmp_path / "ct" / "packed.dcm", scan_of(masks)[0], series="other")
    packed.file_meta.TransferSyntaxUID = UID("1.2.840.10008.1.2.4.80")
    packed.PixelData = b"\xfe\xff\x00\xe0\x00\x00\x00\x00\xfe\xff\x00\xe0\x04\x00\x00\x00abcd"
    packed["PixelData"].is_undefined_length = True
    save(packed, tmp_path / "ct" / "packed.dcm")
    other = head("1.2.840.10008.5.1.4.1.1.2", "lost", patient="other")
    segmentation(tmp_path / "lost.dcm", [(masks[1], 1, other)])
    Image.fromarray(masks[0]).save(tmp_path / "ct" / "nobody_mask.png")
    problems = refused(tmp_path)
    assert "6 problems" in problems
    for name, why in {
        "short.dcm": "not readable as a DICOM image (it is cut short)",
        "text.dcm": "not a DICOM file",
        "empty.dcm": "not a DICOM file",
        "packed.dcm": "its pixels are stored as JPEG-LS Lossless Image Compression: pip install pyjpegls",
        "lost.dcm": "name images that are not here",
        "nobody_mask.png": "no image of that name",
    }.items():
        (line,) = [line for line in problems.splitlines() if name in line]
        assert why in line


def test_nothing_to_prepare(tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "none")
    (tmp_path / "a").mkdir()
    assert "holds no DICOM images (0 other files)" in refused(tmp_path / "a")
    axial(tmp_path / "a")
    assert "4 DICOM images, and nothing is drawn on any" in refused(tmp_path / "a")
    assert "no such folder" in refused(tmp_path / "a", masks=tmp_path / "none")
    assert "window 'brain'" in refused(tmp_path / "a", window="brain")


def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    masks, slices = axial(tmp_path / "in" / "ct")
    segmentation(tmp_path / "in" / "s.dcm", [(masks[k], 1, slices[k]) for k in (0, 1)])
    axial(tmp_path / "in" / "localizer", series="9")
    image(tmp_path / "in" / "shot.dcm", masks[0], SOPClassUID=SC, series="10", BurnedInAnnotation="YES")
    Image.fromarray(masks[0]).save(tmp_path / "in" / "shot_mask.png")
    save(head("1.2.840.10008.5.1.4.1.1.88.22", "report"), tmp_path / "in" / "report.dcm")
    (tmp_path / "in" / "README").write_text("what this is")
    assert main(["data", "prepare", "dicom", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "to")]) == 0
    told = capsys.readouterr().err
    for line in (
        "note: burned-in text was not checked",
        "note: 1 series on which nothing is drawn are left out",
        "note: 1 images that say that text is burned into them are left out",
        "note: 2 other files are passed over",
    ):
        assert line in told
    notes = json.loads((tmp_path / "to" / "dataset.json").read_text())["notes"]
    assert notes[0].startswith("burned-in text was not checked")
    assert len(pairs(tmp_path / "in")) == 2
    assert len(pairs(tmp_path / "in", burned_in=True)) == 3
    assert len(pairs(tmp_path / "in", min_pixels=0)) == 4


def test_a_dicomdir_an_archive_and_a_folder_are_one(tmp_path: Path) -> None:
    masks, slices = axial(tmp_path / "plain" / "ct")
    segmentation(tmp_path / "plain" / "s.dcm", [(masks[k], 1, slices[k]) for k in range(4)])
    for k, file in enumerate([*sorted((tmp_path / "plain" / "ct").iterdir()), tmp_path / "plain" / "s.dcm"]):
        place = tmp_path / "disc" / "DICOM" / f"im{k:04d}"  # from a disc whose names were capitals
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    directory(tmp_path / "disc" / "DICOMDIR", [["DICOM", f"IM{k:04d}"] for k in range(5)])
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in sorted((tmp_path / "plain").rglob("*.dcm")):
            archive.write(file, file.relative_to(tmp_path))
    written = []
    for origin in ("plain", "disc/DICOMDIR", "disc", "all.zip"):
        to = tmp_path / "to" / origin.replace("/", "-")
        assert main(["data", "prepare", "dicom", "--from", str(tmp_path / origin), "--to", str(to)]) == 0
        assert sorted(entry.name for entry in to.iterdir()) == [
            "dataset.json",
            "images",
            "journal.jsonl",
            "lock",
            "masks",
        ]
        written.append((to / "dataset.json").read_bytes())
    assert len(set(written)) == 1
    (tmp_path / "disc" / "DICOM" / "im0002").unlink()
    listed = [*(["DICOM", f"IM{k:04d}"] for k in range(5)), ["..", "plain", "s.dcm"]]
    with pytest.warns(UserWarning, match="Invalid value"):
        directory(tmp_path / "disc" / "DICOMDIR", listed)
    problems = refused(tmp_path / "disc" / "DICOMDIR")
    assert "DICOMDIR: lists DICOM/IM0002, which is not there" in problems
    assert "DICOMDIR: lists ../plain/s.dcm, which is not there" in problems  # nothing outside its folder is
    (tmp_path / "disc" / "DICOMDIR").write_text("no directory")
    assert "DICOMDIR: not a DICOM file" in refused(tmp_path / "disc" / "DICOMDIR")


def test_prepared_twice_resumed_and_split_by_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for patient in range(6):
        folder = tmp_path / "in" / f"someone {patient}"
        for study in ("a", "b"):
            masks, slices = axial(
                folder / study, np.roll(boxes(), patient, axis=2), patient=f"id{patient}", study=study
            )
            segmentation(folder / f"{study}.dcm", [(masks[k], 1, slices[k]) for k in (1, 2)], study=study)
    words = ["data", "prepare", "dicom", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "to")]
    assert main(words) == 0
    before = (tmp_path / "to" / "dataset.json").read_bytes()
    moved = {file: file.stat().st_mtime_ns for file in (tmp_path / "to" / "images").iterdir()}
    assert main(words) == 0
    assert (tmp_path / "to" / "dataset.json").read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "to" / "images").iterdir()} == moved
    # One patient fewer: the others' numbers move, and what was written for one is never taken for another.
    shutil.rmtree(tmp_path / "in" / "someone 3")
    assert main(words) == 0
    again = prepare(dicom(tmp_path / "in"), tmp_path / "fresh", progress=False)
    assert again["counts"] == {"pairs": 20, "groups": 5, "empty_masks": 0, "identical_images": 10, "pools": {}}
    assert (tmp_path / "fresh" / "dataset.json").read_bytes() == (tmp_path / "to" / "dataset.json").read_bytes()
    assert main(["data", "split", str(tmp_path / "to"), "--seeds", "0"]) == 0
    (split,) = tmp_path.rglob("split-0.json")
    (parts,) = json.loads(split.read_text())["splits"]
    groups = dict(zip((s := PreparedSource(tmp_path / "to")).names, s.groups, strict=True))
    sides = [{groups[name] for name in names} for names in parts.values() if names]
    assert len(sides) == 2
    assert not set.intersection(*sides)
