"""DICOM files of real machines: those that come inside pydicom's package. Nothing is downloaded."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_files import image, series, written
from PIL import Image
from pydicom import dcmread
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.multival import MultiValue
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut
from pydicom.pixels.utils import pixel_array

from laworder.cli import main
from laworder.data.prepared import PreparedSource

SLICES = ("MR_small", "MR_small_RLE", "MR_small_bigendian", "MR_small_implicit", "MR_small_jp2klossless",
          "MR_small_padded")  # fmt: skip
WINDOWED = ("MR_small", "examples_overlay", "J2K_pixelrep_mismatch", "693_J2KI")
STRIPES = {
    "SC_rgb_rle": 0, "SC_rgb_rle_16bit": 0, "SC_rgb_rle_32bit": 0, "SC_rgb_rle_2frame": 0, "SC_rgb_gdcm_KY": 0,
    "SC_rgb_dcmtk_+eb+cr": 0, "SC_rgb_dcmtk_+eb+cy+n1": 5, "SC_rgb_dcmtk_+eb+cy+s4": 5, "SC_rgb_jpeg_dcmtk": 5,
    "SC_rgb_jpeg_lossy_gdcm": 1, "SC_ybr_full_422_uncompressed": 5,
}  # fmt: skip
"""Files with one picture in many encodings, and how far a pixel may be from it, inside a stripe."""
COLOURS = ((255, 0, 0), (255, 128, 128), (0, 255, 0), (128, 255, 128), (0, 0, 255), (128, 128, 255), (0, 0, 0),
           (64, 64, 64), (192, 192, 192), (255, 255, 255))  # fmt: skip
PEOPLE = ("CT_small", "MR_small", "JPEG2000", "693_J2KI", "J2K_pixelrep_mismatch", "examples_overlay",
          "examples_palette", "examples_rgb_color", "image_dfl", "ExplVR_BigEnd")  # fmt: skip
LEAST = 5
"""Shorter values, such as 'M' or '010', stand in any file by chance."""


def packaged(name: str) -> Path:
    found = get_testdata_file(name, download=False)
    assert isinstance(found, str), f"{name} is not in the package"
    return Path(found)


def header(path: Path, *, pixels: bool = False) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is odd about these files is why they are here
        return dcmread(path, force=True, stop_before_pixels=not pixels)


def put(folder: Path, *names: str) -> Path:
    """Copies of files, each with a mask that is drawn here."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        copy = shutil.copy(packaged(f"{name}.dcm"), folder)
        mark(Path(copy), folder / f"{name}_mask")
    return folder


def mark(image: Path, mask: Path) -> None:
    known = header(image)
    drawn = np.zeros((int(known.Rows), int(known.Columns)), dtype=np.uint8)
    drawn[known.Rows // 4 : known.Rows // 2 + 1, known.Columns // 3 : known.Columns // 2 + 1] = 255
    frames = [Image.fromarray(drawn)] * int(known.get("NumberOfFrames") or 1)
    suffix = ".png" if len(frames) == 1 else ".tif"
    more: dict[str, Any] = {} if len(frames) == 1 else {"save_all": True, "append_images": frames[1:]}
    frames[0].save(mask.with_name(mask.name + suffix), **more)


def prepare(origin: Path, to: Path, *words: str) -> int:
    return main(["data", "prepare", "dicom", "--from", str(origin), "--to", str(to), *words])


def only(folder: Path, name: str) -> np.ndarray:
    """The first prepared picture of a file."""
    assert prepare(put(folder / "in", name), folder / "to") == 0
    pair = PreparedSource(folder / "to").read(0)
    height, width = pair.mask.shape
    where = np.zeros_like(pair.mask)
    where[height // 4 : height // 2 + 1, width // 3 : width // 2 + 1] = 1
    np.testing.assert_array_equal(pair.mask, where)  # none of these files lies turned
    return pair.image


def test_one_slice_in_six_encodings(tmp_path: Path) -> None:
    first, *others = (only(tmp_path / name, name) for name in SLICES)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_are_those_that_pydicom_applies(tmp_path: Path, name: str) -> None:
    known = header(packaged(f"{name}.dcm"), pixels=True)
    values = apply_voi_lut(apply_modality_lut(pixel_array(known), known), known)
    slope, intercept = float(known.get("RescaleSlope", 1)), float(known.get("RescaleIntercept", 0))
    low = -(2 ** (known.BitsStored - 1)) if known.PixelRepresentation else 0
    darkest, range_ = low * slope + intercept, (2**known.BitsStored - 1) * slope
    np.testing.assert_allclose(only(tmp_path, name)[..., 0], (values - darkest) / range_ * 255, atol=0.51)


@pytest.mark.parametrize("name", STRIPES)
def test_one_picture_in_many_encodings_of_colour(tmp_path: Path, name: str) -> None:
    stripes = np.repeat(np.array(COLOURS), 10, axis=0)[:, None].repeat(100, axis=1)
    away = np.abs(only(tmp_path, name).astype(int) - stripes)
    inside = (np.arange(100) % 10 >= 3) & (np.arange(100) % 10 <= 6)  # JPEG blurs where two stripes meet
    assert away[inside].max() <= STRIPES[name]


GEOMETRY = ("PixelSpacing", "SliceThickness")


def values(known: Dataset) -> Iterator[str]:
    """All that stands in a header but the millimetres, as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for element in (one for one in known.iterall() if one.keyword not in GEOMETRY):
            several = element.value if isinstance(element.value, MultiValue | list) else [element.value]
            for value in several if element.VR != "SQ" else ():
                yield (value.decode("latin1") if isinstance(value, bytes) else str(value)).strip("\0 ")


def test_nothing_that_stands_in_real_headers_comes_out(tmp_path: Path) -> None:
    put(tmp_path / "in", *PEOPLE)
    shutil.copytree(packaged("DICOMDIR").parent, tmp_path / "in" / "disc", ignore=shutil.ignore_patterns("TINY_ALPHA"))
    for file in sorted((tmp_path / "in" / "disc").glob("*/*/*")):
        mark(file, file.with_name(f"{file.name}_mask"))
    images = [f for f in (tmp_path / "in").rglob("*") if f.suffix not in (".png", ".tif") and f.is_file()]
    headers = [header(file) for file in images if not file.name.startswith(("DICOMDIR", "README"))]
    assert prepare(tmp_path / "in", tmp_path / "to") == 0
    assert len(PreparedSource(tmp_path / "to")) == len(headers) == len(PEOPLE) + 31
    needles = {value.lower() for known in headers for value in values(known) if len(value) >= LEAST}
    needles |= {file.stem.lower() for file in images if len(file.stem) >= LEAST}
    assert {"doe^archibald", "compressedsamples^ct1", "1.2.840.113619.2.21.848.246800003.0.1952805748.3"} <= needles
    assert len(needles) > 700
    content = written(tmp_path / "to").lower()
    ours = {"axial", "other"}  # words of our own, for the plane and in a note, that some header also holds
    assert {needle for needle in needles if needle.encode() in content} <= ours


def test_a_real_dicomdir_gives_what_its_folder_gives(tmp_path: Path) -> None:
    disc = tmp_path / "disc"
    shutil.copytree(packaged("DICOMDIR").parent, disc, ignore=shutil.ignore_patterns("TINY_ALPHA", "*.txt"))
    for file in sorted(disc.glob("*/*/*")):
        mask = tmp_path / "masks" / file.relative_to(disc)
        mask.parent.mkdir(parents=True, exist_ok=True)
        mark(file, mask)
    words = ("--dicom.masks", str(tmp_path / "masks"))
    for origin, to in ((disc / "DICOMDIR", "a"), (disc, "b")):
        assert prepare(origin, tmp_path / to, *words) == 0
    first, second = PreparedSource(tmp_path / "a"), PreparedSource(tmp_path / "b")
    assert first.records == second.records
    assert len(first) == 31
    assert len(set(first.groups)) == 2
    assert {record["plane"] for record in first.records if "plane" in record} == {"axial", "coronal", "sagittal"}


def test_all_that_is_bad_is_named_and_its_masks_are_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extended, lossless, near = "JPGExtended", "SC_rgb_jpeg_gdcm", "MR_small_jpeg_ls_lossless"
    bad = put(tmp_path / "bad", extended, lossless, near, "CT_small")
    for name in (extended, lossless, near):  # whatever else is installed here
        decoder = get_decoder(header(bad / f"{name}.dcm").file_meta.TransferSyntaxUID)
        known = {plugin: one for plugin, one in decoder._available.items() if plugin == "pillow"}
        monkeypatch.setattr(decoder, "_available", known)
    for name in ("UN_sequence", "no_meta"):
        shutil.copy(packaged(f"{name}.dcm"), bad)
        Image.new("L", (9, 9), 255).save(bad / f"{name}_mask.png")
    assert prepare(bad, tmp_path / "to") == 2
    lines = capsys.readouterr().err.splitlines()
    told = {Path(line.strip().split(": ")[0]).name: line.split(": ", 1)[1] for line in lines[1:]}
    assert set(told) == {f"{name}.dcm" for name in (extended, lossless, near, "UN_sequence", "no_meta")}
    assert told[f"{extended}.dcm"].startswith("its pixels are stored as JPEG Extended")
    assert "with 12 bits: pip install pylibjpeg pylibjpeg-libjpeg" in told[f"{extended}.dcm"]
    assert told[f"{lossless}.dcm"].endswith("pip install pylibjpeg pylibjpeg-libjpeg (under the GPL), or python-gdcm")
    assert told[f"{near}.dcm"].endswith("pip install pyjpegls")
    assert "not a DICOM file" in told["no_meta.dcm"]
    assert not any((tmp_path / "to").glob("images/*"))


def test_pixels_that_end_too_early_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(put(tmp_path / "in", "MR_truncated", "CT_small"), tmp_path / "to") == 2
    told = capsys.readouterr().err
    assert "MR_truncated.dcm: not readable as a DICOM image (it is cut short); replace or remove it" in told
    assert not (tmp_path / "to" / "dataset.json").exists()


def test_a_segmentation_that_another_program_wrote(tmp_path: Path) -> None:
    """dcmqi's, of a liver. Its CT is not in the package: values are drawn here, under the names that it refers to."""
    drawn = header(packaged("liver_1frame.dcm"), pixels=True)
    frame, shared = drawn.PerFrameFunctionalGroupsSequence[0], drawn.SharedFunctionalGroupsSequence[0]
    image(
        tmp_path / "in" / "ct.dcm",
        np.random.default_rng(0).integers(0, 2000, (512, 512)).astype(np.uint16),
        SOPInstanceUID=frame.DerivationImageSequence[0].SourceImageSequence[0].ReferencedSOPInstanceUID,
        SeriesInstanceUID=drawn.ReferencedSeriesSequence[0].SeriesInstanceUID,
        FrameOfReferenceUID=drawn.FrameOfReferenceUID,
        ImagePositionPatient=list(frame.PlanePositionSequence[0].ImagePositionPatient),
        ImageOrientationPatient=list(shared.PlaneOrientationSequence[0].ImageOrientationPatient),
        PixelSpacing=list(shared.PixelMeasuresSequence[0].PixelSpacing),
    )
    shutil.copy(packaged("liver_1frame.dcm"), tmp_path / "in")
    assert prepare(tmp_path / "in", tmp_path / "to") == 0
    np.testing.assert_array_equal(PreparedSource(tmp_path / "to").read(0).mask, pixel_array(drawn))


def test_a_structure_set_of_a_planning_system(tmp_path: Path) -> None:
    """Three contours of a box of 400 by 300 mm, and two points; the CT is drawn here."""
    known = header(packaged("rtstruct.dcm"))
    study = known.ReferencedFrameOfReferenceSequence[0].RTReferencedStudySequence[0]
    series(
        tmp_path / "in" / "ct",
        np.full((3, 220, 220), 500, dtype=np.uint16),
        origin=(-219.0, -219.0, -200.0),
        spacing=(2.0, 2.0),
        step=10.0,
        SeriesInstanceUID=study.RTReferencedSeriesSequence[0].SeriesInstanceUID,
        FrameOfReferenceUID=known.StructureSetROISequence[0].ReferencedFrameOfReferenceUID,
    )
    shutil.copy(packaged("rtstruct.dcm"), tmp_path / "in")
    assert prepare(tmp_path / "in", tmp_path / "to") == 0
    found = PreparedSource(tmp_path / "to")
    assert [int(found.read(k).mask.sum()) for k in range(3)] == [200 * 150] * 3


def test_structures_reports_and_doses_alone_are_no_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rtstruct", "rtplan", "rtdose", "liver_1frame", "reportsi", "waveform_ecg"):
        (tmp_path / "in").mkdir(exist_ok=True)
        shutil.copy(packaged(f"{name}.dcm"), tmp_path / "in")
    assert prepare(tmp_path / "in", tmp_path / "to") == 2
    assert "in: holds no DICOM images (6 other files)" in capsys.readouterr().err
