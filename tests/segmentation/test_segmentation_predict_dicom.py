"""DICOM series → one Segmentation object each, that lies where the slices lie. All files are made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from bright import saved
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, RLELossless, generate_uid

from laworder.cli import main

CT, US = "1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.6.1"
SEG = "1.2.840.10008.5.1.4.1.1.66.4"


def predict(*words: str) -> int:
    return main(["seg", "predict", *words, "--device", "cpu"])


def picture(slice_number: int) -> np.ndarray:
    """Hounsfield-like values with a bright box that moves from slice to slice."""
    values = np.full((24, 40), -800, np.int16)
    values[4:12, 5 + 2 * slice_number : 15 + 2 * slice_number] = 200
    return values


def header(series: str, study: str, **more: Any) -> Dataset:
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.SOPClassUID, made.SOPInstanceUID = more.pop("SOPClassUID", CT), generate_uid()
    made.SeriesInstanceUID, made.StudyInstanceUID = series, study
    made.PatientName, made.PatientID, made.Modality = "Doe^Jane", "4711", "CT"
    for name, value in more.items():
        setattr(made, name, value)
    return made


def write(made: Dataset, values: np.ndarray, path: Path, *, kind: str = "MONOCHROME2", frames: int = 1) -> Dataset:
    made.Rows, made.Columns = values.shape[-3:-1] if kind == "RGB" else values.shape[-2:]
    made.SamplesPerPixel, made.PhotometricInterpretation = (3 if kind == "RGB" else 1), kind
    if kind == "RGB":
        made.PlanarConfiguration = 0
    made.BitsAllocated = made.BitsStored = 8 * values.dtype.itemsize
    made.HighBit = made.BitsAllocated - 1
    made.PixelRepresentation = int(values.dtype.kind == "i")
    if frames > 1:
        made.NumberOfFrames = frames
    made.PixelData = values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save_as(path, enforce_file_format=True)
    return made


def series(folder: Path, *, count: int = 4, descending: bool = False) -> list[Dataset]:
    """A CT series whose files lie in another order than its slices."""
    uid, study, frame = generate_uid(), generate_uid(), generate_uid()
    made = []
    for k in range(count):
        slice_ = header(
            uid,
            study,
            FrameOfReferenceUID=frame,
            ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
            ImagePositionPatient=[-10.5, 20, 3 * k],
            PixelSpacing=[0.7, 0.8],
            SliceThickness=3,
            RescaleSlope=1,
            RescaleIntercept=-1000,
            InstanceNumber=k + 1,
        )
        name = f"{(count - k if descending else k):03d}.dcm"
        made.append(write(slice_, (picture(k) + 1000).astype(np.uint16), folder / name))
    return made


@pytest.mark.parametrize("descending", [False, True])
def test_a_series_becomes_one_object_in_its_own_geometry(tmp_path: Path, descending: bool) -> None:
    slices = series(tmp_path / "in" / "ct", descending=descending)
    out = tmp_path / "out"
    model = saved(tmp_path / "model")
    words = [model, str(tmp_path / "in"), "--out", str(out), "--mode", "window", "--intensity", "-1000,500"]
    assert predict(*words) == 0
    (path,) = out.rglob("*.dcm")
    assert path.name in ("000.seg.dcm", "001.seg.dcm")
    found = pydicom.dcmread(path)
    assert found.file_meta.MediaStorageSOPClassUID == found.SOPClassUID == SEG
    assert (found.StudyInstanceUID, found.FrameOfReferenceUID) == (
        slices[0].StudyInstanceUID,
        slices[0].FrameOfReferenceUID,
    )
    assert (found.PatientID, str(found.PatientName), found.Modality) == ("4711", "Doe^Jane", "SEG")
    assert found.SeriesInstanceUID != slices[0].SeriesInstanceUID
    assert (found.Rows, found.Columns, found.NumberOfFrames) == (24, 40, 4)
    masks = found.pixel_array
    for k, (mask, groups) in enumerate(zip(masks, found.PerFrameFunctionalGroupsSequence, strict=True)):
        assert np.array_equal(mask > 0, picture(k) > 0)
        assert [float(v) for v in groups.PlanePositionSequence[0].ImagePositionPatient] == [-10.5, 20, 3 * k]
        source = groups.DerivationImageSequence[0].SourceImageSequence[0]
        assert source.ReferencedSOPInstanceUID == slices[k].SOPInstanceUID
        assert groups.FrameContentSequence[0].DimensionIndexValues == [1, k + 1]
    shared = found.SharedFunctionalGroupsSequence[0]
    assert [float(v) for v in shared.PixelMeasuresSequence[0].PixelSpacing] == [0.7, 0.8]
    assert [float(v) for v in shared.PlaneOrientationSequence[0].ImageOrientationPatient] == [1, 0, 0, 0, 1, 0]
    listed = found.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    assert {entry.ReferencedSOPInstanceUID for entry in listed} == {s.SOPInstanceUID for s in slices}
    assert found.SegmentSequence[0].SegmentAlgorithmName == model[:64]


def test_several_series_and_other_files_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    series(folder / "one", count=2)
    series(folder / "two", count=3)
    (folder / "one" / "torn.dcm").write_bytes((folder / "one" / "000.dcm").read_bytes()[:300])
    (folder / "two" / "README").write_text("no suffix, but no DICOM either")
    short = pydicom.dcmread(folder / "two" / "001.dcm")
    short.PixelData = short.PixelData[:100]
    short.save_as(folder / "two" / "001.dcm")
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(folder), "--out", str(out), "--intensity", "-1000,500") == 1
    captured = capsys.readouterr()
    assert "torn.dcm: not" in captured.err
    assert "001.dcm: not readable" in captured.err
    assert "2 of 3 predicted; 1 could not be read; 1 series without slices" in captured.out
    frames = {path.parent.name: pydicom.dcmread(path).NumberOfFrames for path in out.rglob("*.dcm")}
    assert frames == {"one": 2, "two": 2}  # the slice that is damaged is left out, the rest is done
    table = (out / "predictions.csv").read_text()
    assert "one/000.dcm,one/000.seg.dcm,2," in table


def test_one_file_frames_colour_inversion_and_windows(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", in_channels=3)

    def masks_of(name: str, *more: str) -> np.ndarray:
        out = tmp_path / "out" / name
        assert predict(model, str(tmp_path / f"{name}.dcm"), "--out", str(out), "--mode", "window", *more) == 0
        return pydicom.dcmread(out / f"{name}.seg.dcm").pixel_array > 0

    bright = [picture(k) > 0 for k in range(3)]
    colour = np.stack([np.repeat((b * 200).astype(np.uint8)[..., None], 3, -1) for b in bright])
    us = {"SOPClassUID": US, "Modality": "US"}
    write(header("1.2.3", "1.2", **us), colour, tmp_path / "cine.dcm", kind="RGB", frames=3)
    assert np.array_equal(masks_of("cine"), bright)
    seg = pydicom.dcmread(tmp_path / "out" / "cine" / "cine.seg.dcm")
    groups = seg.PerFrameFunctionalGroupsSequence[2]
    assert groups.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber == 3
    assert "PlanePositionSequence" not in groups

    dark = np.where(bright[0], 20, 230).astype(np.uint8)
    write(header("1.2.4", "1.2"), dark, tmp_path / "inverse.dcm", kind="MONOCHROME1")
    assert np.array_equal(masks_of("inverse"), bright[0])

    values = picture(0)
    write(header("1.2.5", "1.2", WindowCenter=[150], WindowWidth=[40]), values, tmp_path / "window.dcm")
    assert np.array_equal(masks_of("window"), bright[0])
    assert not masks_of("window", "--intensity", "100,5000").any()

    packed = write(header("1.2.6", "1.2"), (values + 1000).astype(np.uint16), tmp_path / "rle.dcm")
    packed.compress(RLELossless)
    packed.save_as(tmp_path / "rle.dcm", enforce_file_format=True)
    (tmp_path / "rle.dcm").rename(tmp_path / "IM0001")
    assert predict(model, str(tmp_path / "IM0001"), "--out", str(tmp_path / "out"), "--mode", "window") == 0
    assert np.array_equal(pydicom.dcmread(tmp_path / "out" / "IM0001.seg.dcm").pixel_array > 0, bright[0])


def test_classes_are_segments(tmp_path: Path) -> None:
    write(header("1.2.3", "1.2"), np.where(picture(0) > 0, 220, 20).astype(np.uint8), tmp_path / "a.dcm")
    model = saved(tmp_path / "model", classes=3)
    assert predict(model, str(tmp_path / "a.dcm"), "--out", str(tmp_path / "out"), "--mode", "window") == 0
    found = pydicom.dcmread(tmp_path / "out" / "a.seg.dcm")
    assert [segment.SegmentNumber for segment in found.SegmentSequence] == [1, 2]
    numbers = [
        groups.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        for groups in found.PerFrameFunctionalGroupsSequence
    ]
    assert numbers == [1, 2]
    assert np.array_equal(found.pixel_array[0] > 0, picture(0) > 0)
    assert not found.pixel_array[1].any()


def test_slices_that_are_stored_turned_get_masks_that_are(tmp_path: Path) -> None:
    """The model sees them upright; rows and columns of the object are those of the file."""
    for slice_ in series(tmp_path / "in"):
        slice_.ImageOrientationPatient = [0, -1, 0, 1, 0, 0]
        slice_.save_as(tmp_path / "in" / f"{slice_.InstanceNumber - 1:03d}.dcm", enforce_file_format=True)
    out = tmp_path / "out"
    words = ["--out", str(out), "--mode", "window", "--intensity", "-1000,500"]
    assert predict(saved(tmp_path / "model"), str(tmp_path / "in"), *words) == 0
    (path,) = out.rglob("*.dcm")
    found = pydicom.dcmread(path)
    assert found.pixel_array.shape == (4, 24, 40)
    places = [
        int(g.PlanePositionSequence[0].ImagePositionPatient[2]) // 3 for g in found.PerFrameFunctionalGroupsSequence
    ]
    for k, mask in zip(places, found.pixel_array, strict=True):
        assert np.array_equal(mask > 0, picture(k) > 0)


def test_dicom_that_is_no_image_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series(tmp_path / "in" / "ct", count=2)
    model, out = saved(tmp_path / "model"), tmp_path / "out"
    assert predict(model, str(tmp_path / "in"), "--out", str(out)) == 0
    (made,) = out.rglob("*.dcm")
    again = tmp_path / "in" / "ct" / "segmentation.dcm"  # of the same size as the images, and in their study
    again.write_bytes(made.read_bytes())
    plan = header(generate_uid(), generate_uid(), SOPClassUID="1.2.840.10008.5.1.4.1.1.481.5")
    plan.save_as(tmp_path / "in" / "plan.dcm", enforce_file_format=True)
    assert predict(model, str(tmp_path / "in"), "--out", str(tmp_path / "second")) == 0
    assert [path.relative_to(tmp_path / "second") for path in (tmp_path / "second").rglob("*.dcm")] == [
        made.relative_to(out)
    ]
    capsys.readouterr()
    assert predict(model, str(again), "--out", str(tmp_path / "third")) == 2
    assert "is DICOM, but no image" in capsys.readouterr().err
