"""DICOM images with what is drawn on them: segmentations, structure sets, mask files."""

from laworder.data.sources.dicom.source import DicomRule, dicom

__all__ = ["DicomRule", "dicom"]
