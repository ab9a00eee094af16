"""Identifiers in every corner of DICOM files, and of the files beside them: none comes out again."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_files import (
    HU,
    boxes,
    directory,
    head,
    image,
    made,
    save,
    scan_of,
    segmentation,
    series,
    structures,
    unpacked,
    written,
)
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from pydicom.dataset import Dataset
from pydicom.uid import UID, generate_uid

from laworder.cli import main

PEOPLE = (
    "PatientName", "ReferringPhysicianName", "OperatorsName", "PerformingPhysicianName", "PhysiciansOfRecord",
    "OtherPatientNames", "PatientBirthName", "PatientMotherBirthName", "RequestingPhysician",
    "NameOfPhysiciansReadingStudy", "ResponsiblePerson",
)  # fmt: skip
TEXTS = (
    "IssuerOfPatientID", "InstitutionName", "InstitutionalDepartmentName", "StudyDescription", "SeriesDescription",
    "ProtocolName", "PatientAddress", "MedicalRecordLocator", "DeviceSerialNumber", "InstitutionAddress",
    "PatientComments", "ImageComments", "AdditionalPatientHistory", "AccessionNumber", "StudyID", "StationName",
    "PatientTelephoneNumbers", "Occupation", "EthnicGroup", "MilitaryRank", "CurrentPatientLocation",
    "RequestedProcedureDescription", "WindowCenterWidthExplanation", "OtherPatientIDs", "PerformedProcedureStepID",
    "DerivationDescription", "AcquisitionComments", "DetectorID",
)  # fmt: skip
DATES = (
    "PatientBirthDate", "StudyDate", "SeriesDate", "AcquisitionDate", "ContentDate", "InstanceCreationDate",
    "PerformedProcedureStepStartDate", "DateOfLastCalibration",
)  # fmt: skip


class Planted:
    """Identifiers that were put somewhere, as they would look wherever they came out."""

    def __init__(self) -> None:
        self.needles: list[str] = []
        self._uids: dict[str, str] = {}

    def text(self) -> str:
        self.needles.append(f"Zq{len(self.needles):03d}Mueller")
        return self.needles[-1]

    def date(self) -> str:
        day = dt.date(1901, 1, 1) + dt.timedelta(days=37 * len(self.needles))
        self.needles += [f"{day:%Y}{mark}{day:%m}{mark}{day:%d}" for mark in ("", "-", ".", "/")]
        return f"{day:%Y%m%d}"

    def uid(self) -> UID:
        made_up = generate_uid(entropy_srcs=["planted", str(len(self.needles))])
        self.needles.append(str(made_up))
        return made_up

    def same(self, old: Any) -> str:
        """One new UID for each old one, so that references still fit."""
        return self._uids.setdefault(str(old), str(self.uid()) if str(old) not in self._uids else "")

    def fill(self, dataset: Dataset) -> Dataset:
        """Identifiers in attributes of all kinds, in sequences, in private ones, and behind the pixels."""
        for keyword in PEOPLE:
            setattr(dataset, keyword, f"{self.text()}^Heidi")
        for keyword in TEXTS:
            setattr(dataset, keyword, self.text())
        for keyword in DATES:
            setattr(dataset, keyword, self.date())
        dataset.AcquisitionDateTime = self.date() + "101112.131415"
        dataset.RequestAttributesSequence = [made(ScheduledProcedureStepDescription=self.text())]
        dataset.OtherPatientIDsSequence = [made(PatientID=self.text(), IssuerOfPatientID=self.text())]
        dataset.ReferencedStudySequence = [made(ReferencedSOPInstanceUID=self.uid())]
        dataset.IrradiationEventUID = self.uid()
        block = dataset.private_block(0x0009, self.text(), create=True)
        block.add_new(1, "LO", self.text())
        block.add_new(2, "SQ", [made(PatientName=self.text())])
        block.add_new(3, "OB", self.text().encode() + b"\0")
        dataset.add_new(0x60003000, "OW", self.text().encode() + b"\0" * 20)
        dataset.add_new(0x60001500, "LO", self.text())
        dataset.add_new(0xFFFCFFFC, "OB", self.text().encode() + b"\0")
        dataset.file_meta.SourceApplicationEntityTitle = self.text()
        dataset.file_meta.PrivateInformationCreatorUID = self.uid()
        dataset.file_meta.PrivateInformation = self.text().encode() + b"\0"
        dataset.preamble = self.text().encode().ljust(128, b"\0")
        return dataset

    def renamed(self, dataset: Dataset) -> None:
        """All UIDs of instances, series, studies and frames of reference, wherever they stand."""
        for element in dataset.iterall():
            if element.VR == "UI" and not str(element.value).startswith("1.2.840.10008"):
                element.value = self.same(element.value)
        if "SOPInstanceUID" in dataset:
            dataset.file_meta.MediaStorageSOPInstanceUID = UID(str(dataset.SOPInstanceUID))


def leaks(folder: Path, planted: Planted) -> list[str]:
    content = written(folder).lower()
    forms = [(needle, needle.lower().encode(kind)) for needle in planted.needles for kind in ("utf-8", "utf-16-le")]
    return sorted({needle for needle, form in forms if form in content})


def hospital(folder: Path, planted: Planted) -> Path:
    """Three patients with a segmentation, a structure set, and mask files, full of identifiers."""
    masks = boxes()
    root = folder / planted.text()
    for number, kind in enumerate(("seg", "rt", "files")):
        place = root / f"{planted.text()} {planted.date()}" / planted.text()
        patient = planted.text()
        slices = series(place, scan_of(masks), patient=patient, Modality=planted.text().upper(), **HU)
        if kind == "seg":
            frames = [(masks[k], 1, slices[k]) for k in range(4)]
            drawn = segmentation(place / f"{planted.text()}.dcm", frames, labels=[planted.text()])
            drawn.ContentLabel, drawn.ContentDescription = planted.text().upper(), planted.text()
            drawn.ContentCreatorName = planted.text()
            drawn.SegmentSequence[0].SegmentDescription = planted.text()
            drawn.SegmentSequence[0].TrackingID, drawn.SegmentSequence[0].TrackingUID = planted.text(), planted.uid()
        elif kind == "rt":
            box = np.array([[4.5, 3.5, 0], [12.5, 3.5, 0], [12.5, 9.5, 0], [4.5, 9.5, 0]])
            contours = [(box + np.array([0, 0, 3 * k]), one) for k, one in enumerate(slices)]
            space = str(slices[0].FrameOfReferenceUID)
            drawn = structures(
                place / f"{planted.text()}.dcm", {planted.text(): contours}, space=space, patient=patient
            )
            drawn.StructureSetLabel, drawn.StructureSetName = planted.text(), planted.text()
            drawn.StructureSetDescription = planted.text()
            drawn.RTROIObservationsSequence = [made(ROIObservationLabel=planted.text(), ROIInterpreter=planted.text())]
        else:
            drawn = None
        objects: list[Dataset] = [*slices, drawn] if drawn is not None else slices
        for k, one in enumerate(objects):
            planted.renamed(planted.fill(one))
            path = place / f"{planted.text()}{number}{k}"
            old = sorted(file for file in place.iterdir() if file.suffix == ".dcm")[0]
            old.unlink()
            save(one, path)
            os.utime(path, (0, 1234567890 + k))
            if kind == "files":
                texts = PngInfo()
                texts.add_text("Patient", planted.text())
                Image.fromarray(masks[k] * 255).save(path.with_name(path.name + "_mask.png"), pnginfo=texts)
    planted.needles.append("123456789")  # of the times of the files, in seconds
    return root


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go: they must not stay."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def prepare(origin: Path, to: Path, *words: str) -> int:
    return main(["data", "prepare", "dicom", "--from", str(origin), "--to", str(to), "--dicom.segments", "*", *words])


def test_identifiers_everywhere_and_none_in_what_is_written(tmp_path: Path, planted: Planted, temporary: Path) -> None:
    root = hospital(tmp_path, planted)
    assert len(planted.needles) > 1000
    assert len(leaks(tmp_path, planted)) > 0.6 * len(planted.needles)  # the search finds them where they are
    assert prepare(root, tmp_path / "to") == 0
    assert len(list((tmp_path / "to" / "images").iterdir())) == 12
    assert leaks(tmp_path / "to", planted) == []
    assert list(temporary.iterdir()) == []
    for file in (tmp_path / "to").rglob("*.png"):
        content = unpacked(file.read_bytes())
        assert content.endswith(b"IEND")
        assert content[:-4][-17:-13] == b"IHDR"  # and no chunk between


def test_not_from_a_dicomdir(tmp_path: Path, planted: Planted) -> None:
    masks = boxes()
    slices = series(tmp_path / "disc" / "A", scan_of(masks), patient=planted.text(), **HU)
    seg = segmentation(tmp_path / "disc" / "A" / "004.dcm", [(masks[k], 1, slices[k]) for k in range(4)])
    for one, name in zip([*slices, seg], "ABCDE", strict=True):
        planted.renamed(planted.fill(one))
        save(one, tmp_path / "disc" / "A" / f"Q{name}")
    for file in (tmp_path / "disc" / "A").glob("*.dcm"):
        file.unlink()
    about = {"PatientName": planted.text(), "PatientBirthDate": planted.date(), "FileSetID": planted.text().upper()}
    directory(tmp_path / "disc" / "DICOMDIR", [["A", f"Q{name}"] for name in "ABCDE"], **about)
    assert prepare(tmp_path / "disc" / "DICOMDIR", tmp_path / "to") == 0
    assert len(list((tmp_path / "to" / "images").iterdir())) == 4
    assert leaks(tmp_path / "to", planted) == []


@pytest.mark.parametrize("sound", [True, False])
def test_not_from_an_archive_and_not_after_a_failure(
    tmp_path: Path, planted: Planted, temporary: Path, sound: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = hospital(tmp_path / "in", planted)
    if not sound:  # found only when its pixels are decoded
        name = planted.text()
        packed = image(root / f"{name}.dcm", scan_of(boxes())[0], series="9")
        packed.file_meta.TransferSyntaxUID = UID("1.2.840.10008.1.2.5")
        packed.PixelData = (
            b"\xfe\xff\x00\xe0\x00\x00\x00\x00\xfe\xff\x00\xe0\x20\x00\x00\x00" + planted.text().encode() * 9
        )
        packed["PixelData"].is_undefined_length = True
        (root / f"{name}.dcm").unlink()
        save(packed, root / f"{name}.dcm")
        Image.fromarray(boxes()[0]).save(root / f"{name}_mask.png")
    archive = tmp_path / f"{planted.text()}.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*")):
            file.write(path, path.relative_to(tmp_path))
    assert prepare(archive, tmp_path / "to") == (0 if sound else 2)
    told = capsys.readouterr().err
    assert ("not readable as a DICOM image" in told) is not sound
    assert len(list((tmp_path / "to" / "images").iterdir())) == 12
    assert leaks(tmp_path / "to", planted) == []
    assert list(temporary.iterdir()) == []


def test_what_a_damaged_file_says_is_not_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Values that cannot be parsed hold, as likely as not, what was typed into the wrong field."""
    slices = series(tmp_path / "in", scan_of(boxes()), **HU)
    for one, keyword in zip(slices, ("InstanceNumber", "PixelSpacing", "ImagePositionPatient"), strict=False):
        one.pop(keyword)
        one.add_new(keyword, "LO", "Mueller")
        raw = Path(tmp_path / "in" / f"{keyword}.dcm")
        save(one, raw)
        vr = b"IS" if keyword == "InstanceNumber" else b"DS"
        raw.write_bytes(raw.read_bytes().replace(b"LO\x08\x00Mueller", vr + b"\x08\x00Mueller"))
    assert prepare(tmp_path / "in", tmp_path / "to") == 2
    told = capsys.readouterr()
    assert "InstanceNumber.dcm: not readable as a DICOM image" in told.err
    assert "PixelSpacing.dcm: not readable as a DICOM image" in told.err
    assert "Mueller" not in told.err + told.out + caplog.text


def test_a_class_bears_the_users_name_and_not_the_labels(tmp_path: Path) -> None:
    masks = boxes()
    slices = series(tmp_path / "in", scan_of(masks), **HU)
    segmentation(tmp_path / "in" / "s.dcm", [(masks[k], 1, slices[k]) for k in range(4)], labels=["GTV Mueller"])
    words = ["data", "prepare", "dicom", "--from", str(tmp_path / "in"), "--to", str(tmp_path / "to")]
    assert main([*words, "--dicom.segments", "GTV Mueller=tumour"]) == 0
    content = written(tmp_path / "to")
    assert b"Mueller" not in content
    assert b'"classes": ["background", "tumour"]' in content


def test_numbers_of_patients_tell_no_order(tmp_path: Path) -> None:
    """p0001 is neither the first by PatientID nor the first by date: over many patients, the order is anything."""
    masks = boxes()
    for patient in range(12):
        slices = series(
            tmp_path / f"{patient:02d}", scan_of(np.roll(masks, patient, axis=2)), patient=f"{patient:02d}", **HU
        )
        frames = [(np.roll(masks, patient, axis=2)[1], 1, slices[1])]
        segmentation(tmp_path / f"{patient:02d}" / "s.dcm", frames)
    from laworder.data.sources.dicom import dicom

    units = dicom(tmp_path).units
    order = [int(unit.files[0].parent.name) for unit in units]
    assert sorted(order) == list(range(12)) != order
    assert order != list(range(12))[::-1]
    # Under other names and in another order of folders the numbers are the same.
    for patient in range(12):
        (tmp_path / f"{patient:02d}").rename(tmp_path / f"x{(patient * 5) % 12:02d}")
    assert [unit.content for unit in dicom(tmp_path).units] == [unit.content for unit in units]


def test_reports_and_other_objects_are_passed_over(tmp_path: Path, planted: Planted) -> None:
    masks = boxes()
    slices = series(tmp_path / "in", scan_of(masks), **HU)
    segmentation(tmp_path / "in" / "s.dcm", [(masks[k], 1, slices[k]) for k in range(4)])
    for number, kind in enumerate(("1.2.840.10008.5.1.4.1.1.88.22", "1.2.840.10008.5.1.4.1.1.104.1")):
        save(planted.fill(head(kind, str(number))), tmp_path / "in" / f"{planted.text()}.dcm")
    assert prepare(tmp_path / "in", tmp_path / "to") == 0
    assert leaks(tmp_path / "to", planted) == []
