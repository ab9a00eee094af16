"""A DICOM Segmentation object (PS3.3 A.51) of the slices of one series: BINARY, one frame a slice and segment.

It is written into the patient's own study, so that a viewer lays it over the images: patient and study attributes and
the frame of reference are the source's, and every frame names the slice that it was derived from.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from laworder._version import __version__
from laworder.data.sources.dicom.seg import SEGMENTATION

_COPIED = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyInstanceUID", "StudyDate", "StudyTime"),
    *("AccessionNumber", "ReferringPhysicianName", "StudyID", "StudyDescription", "PatientAge", "FrameOfReferenceUID"),
    *("PositionReferenceIndicator", "SpecificCharacterSet"),
)

_NEVER_MISSING = (  # type 2: there, if empty
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "AccessionNumber"),
    *("ReferringPhysicianName", "StudyID", "PositionReferenceIndicator"),
)


def segmentation(
    sources: Sequence[tuple[Any, int]], masks: UInt8[np.ndarray, "n h w"], *, classes: int, model: str
) -> Any:
    """The object, ready to save.

    sources: dataset and frame number (from 1) of each slice, all of one series
    masks: class per pixel, 0 the background, in the same order
    """
    from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
    from pydicom.pixels.utils import pack_bits
    from pydicom.uid import UID, ExplicitVRLittleEndian, generate_uid

    first = sources[0][0]
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = UID(SEGMENTATION), ExplicitVRLittleEndian
    meta.MediaStorageSOPInstanceUID = generate_uid()
    seg = FileDataset("", Dataset(), file_meta=meta, preamble=b"\0" * 128)
    for name in _COPIED:
        if name in first:
            setattr(seg, name, first[name].value)
    for name in _NEVER_MISSING:
        if name not in seg:
            setattr(seg, name, "")
    segments = range(1, max(2, classes))
    _head(seg, meta.MediaStorageSOPInstanceUID, generate_uid())
    _image(seg, masks.shape, len(segments))
    seg.SegmentSequence = [_segment(number, model) for number in segments]
    seg.DimensionOrganizationSequence = [_made(DimensionOrganizationUID=generate_uid())]
    organisation = seg.DimensionOrganizationSequence[0].DimensionOrganizationUID
    seg.DimensionIndexSequence = [
        _made(DimensionOrganizationUID=organisation, DimensionIndexPointer=pointer, FunctionalGroupPointer=group)
        for pointer, group in ((0x0062000B, 0x0062000A), (0x00209157, 0x00209111))
    ]
    seg.SharedFunctionalGroupsSequence = [_shared(first)]
    order = [(number, k) for number in segments for k in range(len(sources))]
    seg.PerFrameFunctionalGroupsSequence = [_frame(sources[k], number, k + 1) for number, k in order]
    seg.ReferencedSeriesSequence = [_references(sources)]
    seg.PixelData = pack_bits(np.stack([masks[k] == number for number, k in order]).astype(np.uint8))
    return seg


def _made(**values: Any) -> Any:
    from pydicom.dataset import Dataset

    made = Dataset()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _code(value: str, scheme: str, meaning: str) -> Any:
    return _made(CodeValue=value, CodingSchemeDesignator=scheme, CodeMeaning=meaning)


def _head(seg: Any, instance: str, series: str) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    seg.SOPClassUID, seg.SOPInstanceUID, seg.SeriesInstanceUID = SEGMENTATION, instance, series
    seg.Modality, seg.SeriesNumber, seg.InstanceNumber = "SEG", 9000, 1
    seg.SeriesDescription = "laworder, not a medical device"
    seg.ContentDate = seg.SeriesDate = now.strftime("%Y%m%d")
    seg.ContentTime = seg.SeriesTime = now.strftime("%H%M%S")
    seg.Manufacturer, seg.ManufacturerModelName = "laworder", "laworder"
    seg.DeviceSerialNumber, seg.SoftwareVersions = "none", __version__
    seg.ContentLabel, seg.ContentDescription, seg.ContentCreatorName = "SEGMENTATION", "predicted mask", ""


def _image(seg: Any, shape: tuple[int, ...], segments: int) -> None:
    seg.ImageType = ["DERIVED", "PRIMARY"]
    seg.NumberOfFrames, seg.Rows, seg.Columns = shape[0] * segments, shape[1], shape[2]
    seg.SamplesPerPixel, seg.PhotometricInterpretation, seg.PixelRepresentation = 1, "MONOCHROME2", 0
    seg.BitsAllocated = seg.BitsStored = 1
    seg.HighBit = 0
    seg.LossyImageCompression, seg.SegmentationType = "00", "BINARY"


def _segment(number: int, model: str) -> Any:
    return _made(
        SegmentNumber=number,
        SegmentLabel="lesion" if number == 1 else f"class {number}",
        SegmentAlgorithmType="AUTOMATIC",
        SegmentAlgorithmName=model[:64],
        SegmentedPropertyCategoryCodeSequence=[_code("49755003", "SCT", "Morphologically Altered Structure")],
        SegmentedPropertyTypeCodeSequence=[_code("52988006", "SCT", "Lesion")],
    )


def _shared(first: Any) -> Any:
    measures = {n: first[n].value for n in ("PixelSpacing", "SliceThickness", "SpacingBetweenSlices") if n in first}
    groups: dict[str, Any] = {"PixelMeasuresSequence": [_made(**measures)]} if measures else {}
    if "ImageOrientationPatient" in first:
        groups["PlaneOrientationSequence"] = [_made(ImageOrientationPatient=first.ImageOrientationPatient)]
    return _made(**groups)


def _frame(source: tuple[Any, int], segment: int, place: int) -> Any:
    image, number = source
    reference = _made(
        ReferencedSOPClassUID=image.SOPClassUID,
        ReferencedSOPInstanceUID=image.SOPInstanceUID,
        PurposeOfReferenceCodeSequence=[_code("121322", "DCM", "Source image for image processing operation")],
    )
    if int(image.get("NumberOfFrames", 1) or 1) > 1:
        reference.ReferencedFrameNumber = number
    derivation = _made(SourceImageSequence=[reference], DerivationCodeSequence=[_code("113076", "DCM", "Segmentation")])
    groups: dict[str, Any] = {
        "DerivationImageSequence": [derivation],
        "FrameContentSequence": [_made(DimensionIndexValues=[segment, place])],
        "SegmentIdentificationSequence": [_made(ReferencedSegmentNumber=segment)],
    }
    if "ImagePositionPatient" in image:
        groups["PlanePositionSequence"] = [_made(ImagePositionPatient=image.ImagePositionPatient)]
    return _made(**groups)


def _references(sources: Sequence[tuple[Any, int]]) -> Any:
    instances = {image.SOPInstanceUID: image.SOPClassUID for image, _ in sources}
    listed = [_made(ReferencedSOPClassUID=kind, ReferencedSOPInstanceUID=uid) for uid, kind in instances.items()]
    return _made(SeriesInstanceUID=sources[0][0].SeriesInstanceUID, ReferencedInstanceSequence=listed)
