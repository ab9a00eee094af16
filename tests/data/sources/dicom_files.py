"""DICOM files for tests, made here: images, segmentations, structure sets. And all the bytes of what is written."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels.utils import pack_bits
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

CT, MR, US = "1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.3.1"
SC, ENHANCED_CT = "1.2.840.10008.5.1.4.1.1.7", "1.2.840.10008.5.1.4.1.1.2.1"
SEG, LABEL_MAP, STRUCTURES = (
    "1.2.840.10008.5.1.4.1.1.66.4",
    "1.2.840.10008.5.1.4.1.1.66.7",
    "1.2.840.10008.5.1.4.1.1.481.3",
)
AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def made(**values: Any) -> Dataset:
    """A dataset of these attributes."""
    found = Dataset()
    for name, value in values.items():
        setattr(found, name, value)
    return found


def uid(*words: object) -> str:
    """The same UID for the same words."""
    return generate_uid(entropy_srcs=["laworder", *map(str, words)])


def head(kind: str, name: str, *, patient: str = "4711", study: str = "a", series: str = "1", **more: Any) -> Dataset:
    """What all objects have. A value of None leaves the attribute out."""
    values: dict[str, Any] = {
        "SOPClassUID": kind,
        "SOPInstanceUID": uid("instance", patient, study, series, name),
        "StudyInstanceUID": uid("study", patient, study),
        "SeriesInstanceUID": uid("series", patient, study, series),
        "PatientID": patient,
        "PatientName": f"Doe^{patient}",
        "Modality": "OT",
        **more,
    }
    found = made(**{key: value for key, value in values.items() if value is not None})
    found.file_meta = FileMetaDataset()
    found.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return found


def save(dataset: Dataset, path: Path) -> Dataset:
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return dataset


def with_pixels(dataset: Dataset, values: np.ndarray, *, kind: str = "MONOCHROME2", frames: int = 0) -> Dataset:
    """The dataset with an array of pixels: (frames,) rows, columns (, samples)."""
    colour = kind in ("RGB", "YBR_FULL")
    shape = values.shape[1:] if frames else values.shape
    dataset.Rows, dataset.Columns = shape[:2]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = (3 if colour else 1), kind
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = dataset.BitsStored = 8 * values.dtype.itemsize
    dataset.HighBit = dataset.BitsAllocated - 1
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    if frames:
        dataset.NumberOfFrames = frames
    dataset.PixelData = values.tobytes() + b"\0" * (values.nbytes % 2)
    return dataset


def image(path: Path, values: np.ndarray, *, kind: str = "MONOCHROME2", frames: int = 0, **more: Any) -> Dataset:
    """An image file."""
    where = head(more.pop("SOPClassUID", CT), path.name, **{"Modality": "CT", **more})
    return save(with_pixels(where, values, kind=kind, frames=frames), path)


def series(
    folder: Path,
    values: np.ndarray,
    *,
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    sides: Sequence[float] = AXIAL,
    spacing: tuple[float, float] = (1.0, 1.0),
    step: float = 3.0,
    **more: Any,
) -> list[Dataset]:
    """A file for each slice of an array (slices, rows, columns), `step` mm apart along the normal."""
    normal = np.cross(sides[:3], sides[3:])
    patient = more.get("patient", "4711")
    shared = {
        "FrameOfReferenceUID": uid("space", patient, more.get("study", "a")),
        "ImageOrientationPatient": list(sides),
        "PixelSpacing": list(spacing),
        "SliceThickness": step,
        **more,
    }
    return [
        image(
            folder / f"{k:03d}.dcm",
            values[k],
            **{
                "ImagePositionPatient": [round(float(v), 6) for v in np.array(origin) + k * step * normal],
                "InstanceNumber": k + 1,
                **shared,
            },
        )
        for k in range(len(values))
    ]


def source_item(slice_: Dataset, frame: int = 0) -> Dataset:
    item = made(ReferencedSOPClassUID=slice_.SOPClassUID, ReferencedSOPInstanceUID=slice_.SOPInstanceUID)
    if frame:
        item.ReferencedFrameNumber = frame
    return item


def segmentation(
    path: Path,
    frames: Sequence[tuple[np.ndarray, int, Dataset | None]],
    *,
    labels: Sequence[str] = ("Lesion",),
    kind: str = "BINARY",
    named: bool = True,
    placed: bool = True,
    **more: Any,
) -> Dataset:
    """A Segmentation object.

    frames: values, the number of the segment, and the slice that each lies on
    named: frames name their slices; placed: they have its position
    """
    first = frames[0][2]
    patient = more.pop("patient", str(first.get("PatientID") or "4711") if first is not None else "4711")
    space = first.get("FrameOfReferenceUID") if first is not None else None
    more = {"FrameOfReferenceUID": space, "Modality": "SEG", **more}
    found = head(LABEL_MAP if kind == "LABELMAP" else SEG, path.stem, patient=patient, series="seg", **more)
    stacked = np.stack([values for values, _, _ in frames]).astype(np.uint8)
    with_pixels(found, stacked, frames=len(frames))
    if kind == "BINARY":
        found.BitsAllocated = found.BitsStored = 1
        found.HighBit = 0
        found.PixelData = pack_bits(stacked)
    found.SegmentationType = kind
    if kind == "FRACTIONAL":
        found.MaximumFractionalValue = 255
    found.SegmentSequence = [made(SegmentNumber=k, SegmentLabel=label) for k, label in enumerate(labels, start=1)]
    found.PerFrameFunctionalGroupsSequence = [
        _groups(number, one, named=named, placed=placed, kind=kind) for _, number, one in frames
    ]
    if first is not None and "PixelSpacing" in first:
        found.SharedFunctionalGroupsSequence = [
            made(
                PixelMeasuresSequence=[made(PixelSpacing=first.PixelSpacing)],
                PlaneOrientationSequence=[made(ImageOrientationPatient=first.ImageOrientationPatient)],
            )
        ]
    return save(found, path)


def _groups(number: int, one: Dataset | None, *, named: bool, placed: bool, kind: str) -> Dataset:
    groups = made()
    if kind != "LABELMAP":
        groups.SegmentIdentificationSequence = [made(ReferencedSegmentNumber=number)]
    if one is not None and named:
        groups.DerivationImageSequence = [made(SourceImageSequence=[source_item(one)])]
    if one is not None and placed and "ImagePositionPatient" in one:
        groups.PlanePositionSequence = [made(ImagePositionPatient=one.ImagePositionPatient)]
    return groups


def structures(
    path: Path,
    regions: dict[str, Sequence[tuple[np.ndarray, Dataset | None]]],
    *,
    space: str | None,
    kind: str = "CLOSED_PLANAR",
    patient: str = "4711",
    **more: Any,
) -> Dataset:
    """A structure set: for each region its contours (points in the patient), and the image that each names."""
    found = head(STRUCTURES, path.stem, patient=patient, series="rt", **{"Modality": "RTSTRUCT", **more})
    found.StructureSetROISequence, found.ROIContourSequence = [], []
    for number, (label, contours) in enumerate(regions.items(), start=1):
        roi = made(ROINumber=number, ROIName=label)
        if space is not None:
            roi.ReferencedFrameOfReferenceUID = space
        found.StructureSetROISequence.append(roi)
        items = []
        for points, one in contours:
            item = made(ContourGeometricType=kind, NumberOfContourPoints=len(points))
            item.ContourData = [f"{v:.4f}" for v in np.asarray(points).ravel()]
            if one is not None:
                item.ContourImageSequence = [source_item(one)]
            items.append(item)
        found.ROIContourSequence.append(made(ReferencedROINumber=number, ContourSequence=items))
    return save(found, path)


def directory(path: Path, files: Sequence[Sequence[str]], **more: Any) -> Dataset:
    """A DICOMDIR that lists files."""
    found = head("1.2.840.10008.1.3.10", "directory", Modality=None)
    found.DirectoryRecordSequence = [
        made(DirectoryRecordType="PATIENT", PatientID="4711", **more),
        *(made(DirectoryRecordType="IMAGE", ReferencedFileID=list(names)) for names in files),
    ]
    return save(found, path)


def boxes(count: int = 4, rows: int = 20, columns: int = 30) -> np.ndarray:
    """Masks in which a box wanders from slice to slice."""
    masks = np.zeros((count, rows, columns), dtype=np.uint8)
    for k in range(count):
        masks[k, 3 + k : 8 + k, 5 + 2 * k : 12 + 2 * k] = 1
    return masks


def scan_of(masks: np.ndarray) -> np.ndarray:
    """CT values, stored unsigned: soft tissue, and brighter where the masks say."""
    noise = np.random.default_rng(0).integers(0, 30, masks.shape)
    return (1000 + noise + 200 * (masks > 0)).astype(np.uint16)


HU: dict[str, Any] = {"RescaleSlope": 1, "RescaleIntercept": -1000}


def written(folder: Path) -> bytes:
    """All names and bytes below a folder, those that are packed in PNG files unpacked."""
    found = b""
    for path in sorted(folder.rglob("*")):
        found += os.fsencode(path.relative_to(folder)) + b"\n"
        if path.is_file():
            content = path.read_bytes()
            found += content + (unpacked(content) if content.startswith(b"\x89PNG") else b"") + b"\n"
    return found


def unpacked(png: bytes) -> bytes:
    """The chunks of a PNG file, the pixels decompressed."""
    place, pixels, others = 8, b"", b""
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length
        if kind == b"IDAT":
            pixels += data
        else:
            others += kind + data
    return zlib.decompress(pixels) + others
