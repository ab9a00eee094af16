"""Stored values → what is looked at, against the formulas of the standard; and files as vendors really write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_files import AXIAL, HU, US, boxes, image, made, save, scan_of, segmentation, series
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.pixels.processing import convert_color_space
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit, RLELossless

from laworder.data.sources.dicom import DicomRule, dicom
from laworder.data.sources.dicom.header import read_header
from laworder.data.sources.dicom.pixels import shown_pixels, stored_values, used_bits
from laworder.errors import UserError

RAMP = np.arange(-1024, 3072, dtype=np.int16).reshape(64, 64)


def seen(path: Path, index: int = 0, **more: Any) -> np.ndarray:
    pixels = shown_pixels(path, read_header(path, pixels=True), index, **more)
    return pixels[..., 0].astype(int) if pixels.shape[2] == 1 else pixels.astype(int)


def ramp(tmp_path: Path, **more: Any) -> Path:
    image(tmp_path / "ramp.dcm", RAMP, **more)
    return tmp_path / "ramp.dcm"


@pytest.mark.parametrize(("centre", "width"), [(40, 400), (-600, 1500), (100, 1), (0.5, 2), (1023.5, 4096)])
def test_a_linear_window_is_that_of_the_standard(tmp_path: Path, centre: float, width: float) -> None:
    """PS3.3 C.11.2.1.2.1, written out."""
    path = ramp(tmp_path, WindowCenter=[centre, 1], WindowWidth=[width, 2])
    expected = np.empty(RAMP.shape)
    for place, x in np.ndenumerate(RAMP.astype(float)):
        if x <= centre - 0.5 - (width - 1) / 2:
            expected[place] = 0
        elif x > centre - 0.5 + (width - 1) / 2:
            expected[place] = 255
        else:
            expected[place] = ((x - (centre - 0.5)) / (width - 1) + 0.5) * 255
    np.testing.assert_allclose(seen(path), expected, atol=0.51)


def test_other_functions_numbers_and_the_range_of_a_file_without_a_window(tmp_path: Path) -> None:
    values = RAMP.astype(float)
    sigmoid = ramp(tmp_path, WindowCenter=40, WindowWidth=400, VOILUTFunction="SIGMOID")
    np.testing.assert_allclose(seen(sigmoid), 255 / (1 + np.exp(-4 * (values - 40) / 400)), atol=0.51)
    exact = ramp(tmp_path, WindowCenter=40, WindowWidth=400, VOILUTFunction="LINEAR_EXACT")
    np.testing.assert_allclose(seen(exact), np.clip((values + 160) / 400, 0, 1) * 255, atol=0.51)
    # What is asked for comes before the file's own.
    np.testing.assert_allclose(seen(exact, window=(0, 100)), np.clip(values / 100, 0, 1) * 255, atol=0.51)
    for nonsense in ({"WindowCenter": 40, "WindowWidth": 0}, {"WindowCenter": 40}, {}):
        bare = ramp(tmp_path, **nonsense)
        np.testing.assert_allclose(seen(bare, own_range=(-24, 76)), np.clip((values + 24) / 100, 0, 1) * 255, atol=0.51)
        assert (seen(bare).min(), seen(bare).max()) == (0, 255)


def test_inversion_padding_and_rescale(tmp_path: Path) -> None:
    stored = np.tile(np.arange(0, 4000, 50, dtype=np.uint16), (4, 1))
    stored[0] = 3
    shared: dict[str, Any] = {"RescaleSlope": 0.5, "RescaleIntercept": -1000}
    path = tmp_path / "a.dcm"
    image(path, stored, **shared, PixelPaddingValue=3)
    expected = np.clip((stored * 0.5 - 1000 + 100) / 300, 0, 1) * 255
    expected[0] = 0
    np.testing.assert_allclose(seen(path, window=(-100, 200)), expected, atol=0.51)
    image(path, stored, kind="MONOCHROME1", **shared, PixelPaddingValue=3)
    inverted = 255 - expected
    inverted[0] = 0  # padding stays black
    np.testing.assert_allclose(seen(path, window=(-100, 200)), inverted, atol=1.01)
    image(path, stored, **shared, PixelPaddingValue=0, PixelPaddingRangeLimit=1000)
    assert not seen(path, window=(-2000, 2000))[stored <= 1000].any()
    # Its VR follows the sign of the pixels; here it was written as an unsigned number.
    signed = (stored.astype(int) - 2000).astype(np.int16)
    found = image(path, signed, WindowCenter=0, WindowWidth=2000)
    found.add_new("PixelPaddingValue", "US", 63536)
    save(found, path)
    assert not seen(path)[stored == 0].any()


def test_twelve_bits_in_sixteen(tmp_path: Path) -> None:
    """Bits that are not in use may hold overlays, and with them text."""
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    overlay = (values % 16) << 12
    found = image(tmp_path / "a.dcm", values | overlay)
    found.BitsStored, found.HighBit = 12, 11
    save(found, tmp_path / "a.dcm")
    header = read_header(tmp_path / "a.dcm", pixels=True)
    np.testing.assert_array_equal(used_bits(stored_values(tmp_path / "a.dcm", header, 0), header), values)
    # The upper twelve, as old writers have it, with an overlay below.
    found.PixelData, found.HighBit = ((values << 4) | (values % 16)).tobytes(), 15
    save(found, tmp_path / "a.dcm")
    np.testing.assert_array_equal(seen(tmp_path / "a.dcm", window=(0, 4095)), np.round(values / 4095 * 255))
    # Signed: the sign is that of the twelfth bit.
    signed = (values.astype(int) - 2048).astype(np.int16)
    found.PixelData, found.HighBit = (signed & 0x0FFF).astype(np.uint16).tobytes(), 11
    found.PixelRepresentation = 1
    save(found, tmp_path / "a.dcm")
    np.testing.assert_allclose(seen(tmp_path / "a.dcm", window=(-2048, 2047)), (signed + 2048) / 4095 * 255, atol=0.51)


def test_lookup_tables(tmp_path: Path) -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16)
    path = tmp_path / "a.dcm"
    table = [min(4095, 16 * max(0, k - 20)) for k in range(200)]
    found = image(path, values, WindowCenter=1, WindowWidth=1)
    found.VOILUTSequence = [made()]
    found.VOILUTSequence[0].add_new("LUTDescriptor", "US", [200, 20, 12])
    found.VOILUTSequence[0].add_new("LUTData", "OW", np.array(table, dtype="<u2").tobytes())
    save(found, path)
    expected = np.array([table[min(199, max(0, int(v) - 20))] for v in values.ravel()]).reshape(16, 16) / 4095 * 255
    np.testing.assert_allclose(seen(path), expected, atol=0.51)
    # A modality LUT, with a first value below zero in signed pixels.
    signed = (values.astype(int) - 128).astype(np.int16)
    found = image(path, signed, WindowCenter=500, WindowWidth=1001)
    found.ModalityLUTSequence = [made(ModalityLUTType="US")]
    found.ModalityLUTSequence[0].add_new("LUTDescriptor", "SS", [256, -128, 16])
    found.ModalityLUTSequence[0].add_new("LUTData", "US", [4 * k for k in range(256)])
    save(found, path)
    np.testing.assert_allclose(seen(path), np.clip((4 * values) / 1000, 0, 1) * 255, atol=1)


def test_colours_and_palettes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (10, 12, 3), dtype=np.uint8)
    path = tmp_path / "a.dcm"
    image(path, rgb, kind="RGB", SOPClassUID=US)
    np.testing.assert_array_equal(seen(path), rgb)
    planes = image(path, rgb, kind="RGB")
    planes.PlanarConfiguration, planes.PixelData = 1, rgb.transpose(2, 0, 1).tobytes()
    save(planes, path)
    np.testing.assert_array_equal(seen(path), rgb)
    image(path, convert_color_space(rgb, "RGB", "YBR_FULL"), kind="YBR_FULL")
    np.testing.assert_allclose(seen(path), rgb, atol=3)
    numbers = rng.integers(0, 50, (10, 12), dtype=np.uint8)
    colours = rng.integers(0, 256, (50, 3))
    found = image(path, numbers, kind="PALETTE COLOR")
    for k, name in enumerate(("Red", "Green", "Blue")):
        found.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [50, 0, 16])
        table = (colours[:, k] * 257).astype("<u2").tobytes()
        found.add_new(f"{name}PaletteColorLookupTableData", "OW", table)
    save(found, path)
    np.testing.assert_array_equal(seen(path), colours[numbers])


def compressed(path: Path, syntax: UID, streams: list[bytes], kind: str = "") -> None:
    found = dcmread(path)
    found.PixelData = encapsulate(streams)
    found["PixelData"].is_undefined_length = True
    found.file_meta.TransferSyntaxUID = syntax
    found.PhotometricInterpretation = kind or found.PhotometricInterpretation
    save(found, path)


def test_compressed_files(tmp_path: Path) -> None:
    stored = scan_of(boxes())
    path = tmp_path / "a.dcm"
    plain = image(path, stored, frames=4, WindowCenter=1100, WindowWidth=400)
    expected = [seen(path, k) for k in range(4)]
    plain.compress(RLELossless)
    save(plain, path)
    np.testing.assert_array_equal([seen(path, k) for k in range(4)], expected)
    import io

    pixels = (np.indices((16, 16)).sum(axis=0) * 8).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    image(path, pixels)
    compressed(path, JPEGBaseline8Bit, [buffer.getvalue()])
    np.testing.assert_allclose(seen(path), pixels, atol=6)
    deep = RAMP.astype(np.int32).astype(np.uint16)
    buffer = io.BytesIO()
    Image.fromarray(deep).save(buffer, "JPEG2000", irreversible=False, no_jp2=True)
    image(path, deep, WindowCenter=0, WindowWidth=4000)
    before = seen(path)
    compressed(path, UID("1.2.840.10008.1.2.4.90"), [buffer.getvalue()])
    np.testing.assert_array_equal(seen(path), before)
    inflated = image(path, deep, WindowCenter=0, WindowWidth=4000)
    inflated.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    save(inflated, path)
    np.testing.assert_array_equal(seen(path), before)


@pytest.mark.parametrize(
    ("syntax", "package"),
    [
        ("1.2.840.10008.1.2.4.80", "pip install pyjpegls"),
        ("1.2.840.10008.1.2.4.70", "pip install pylibjpeg pylibjpeg-libjpeg"),
        ("1.2.840.10008.1.2.4.201", "pip install pylibjpeg pylibjpeg-openjpeg"),
        ("1.2.840.10008.1.2.4.100", "which is not read; convert it"),
        ("1.2.3.4", "an unknown transfer syntax, which is not read"),
    ],
)
def test_a_missing_decoder_is_named_with_the_file(
    tmp_path: Path, syntax: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydicom.pixels.decoders.base import Decoder

    monkeypatch.setattr(Decoder, "is_available", False)  # whatever is installed here
    image(tmp_path / "a.dcm", RAMP)
    compressed(tmp_path / "a.dcm", UID(syntax), [b"abcd"])
    with pytest.raises(UserError, match=r"a\.dcm: its pixels are stored as .*" + package):
        dicom(tmp_path)


def prepared(folder: Path, **rule: Any) -> list[np.ndarray]:
    raw = dicom(folder, DicomRule(**rule))
    return [item.pair.image[..., 0] for unit in raw.units for item in raw.read(unit)]


def marked(folder: Path, values: np.ndarray, **more: Any) -> list[Dataset]:
    """A series with something drawn on every slice."""
    slices = series(folder / "ct", values, **more)
    drawn = boxes(len(values), *values.shape[1:])
    segmentation(folder / "s.dcm", [(drawn[k], 1, one) for k, one in enumerate(slices)])
    return slices


def test_slices_of_a_series_without_a_window_stay_comparable(tmp_path: Path) -> None:
    """Their own range is the series', not each slice's."""
    values = np.stack([np.full((20, 30), 100 * k, dtype=np.uint16) for k in range(4)])
    marked(tmp_path, values)
    assert [int(picture.mean()) for picture in prepared(tmp_path)] == [255, 170, 85, 0]


def test_each_file_of_a_series_has_its_own_rescale(tmp_path: Path) -> None:
    """Positron emission: the same values, stored with another slope in every slice."""
    activity = np.linspace(0, 3000, 600).reshape(20, 30)
    slopes = (0.5, 1, 2, 4)
    slices = marked(tmp_path, np.stack([np.round(activity / slope).astype(np.uint16) for slope in slopes]))
    for one, slope in zip(slices, slopes, strict=True):
        one.RescaleSlope, one.RescaleIntercept = slope, 0
        save(one, tmp_path / "ct" / f"{int(one.InstanceNumber) - 1:03d}.dcm")
    pictures = np.stack(prepared(tmp_path)).astype(int)
    assert np.abs(pictures - pictures[0]).max() <= 1


OFTEN_MISSING = (
    "SliceThickness", "InstanceNumber", "PatientName", "PatientID", "Modality", "FrameOfReferenceUID",
    "SamplesPerPixel", "PhotometricInterpretation", "BitsStored", "HighBit", "PixelRepresentation",
    "RescaleSlope", "WindowCenter",
)  # fmt: skip


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("keyword", OFTEN_MISSING)
def test_attributes_that_are_often_missing_or_empty(tmp_path: Path, keyword: str, empty: bool) -> None:
    shared: dict[str, Any] = {**HU, "RescaleIntercept": 0, "WindowCenter": 1100, "WindowWidth": 400}
    slices = marked(tmp_path, scan_of(boxes()), **shared)
    expected = np.stack(prepared(tmp_path))
    for k, one in enumerate(slices):
        if empty:
            one[keyword].value = None
        else:
            del one[keyword]
        if not (empty and keyword in ("BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel")):
            save(one, tmp_path / "ct" / f"{k:03d}.dcm")
    found = np.stack(prepared(tmp_path))
    if keyword == "WindowCenter":  # their own range, then
        assert found.shape == expected.shape
    else:
        np.testing.assert_array_equal(found, expected)


def test_no_preamble_no_transfer_syntax_and_no_orientation(tmp_path: Path) -> None:
    slices = marked(tmp_path, scan_of(boxes()), **HU)
    expected = np.stack(prepared(tmp_path))
    bare = made()
    bare.update(slices[0])
    bare.save_as(tmp_path / "ct" / "000.dcm", implicit_vr=True, little_endian=True)  # no preamble, no meta
    slices[1].file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    save(slices[1], tmp_path / "ct" / "001.dcm")
    np.testing.assert_array_equal(np.stack(prepared(tmp_path)), expected)
    for k, one in enumerate(slices):
        one.ImageOrientationPatient, one.ImagePositionPatient = [0.0] * 6, [0.0] * 3
        save(one, tmp_path / "ct" / f"{k:03d}.dcm")
    segmentation(tmp_path / "s.dcm", [(boxes()[k], 1, one) for k, one in enumerate(slices)], placed=False)
    np.testing.assert_array_equal(np.stack(prepared(tmp_path)), expected[::-1])  # by instance number


def test_more_frames_than_the_file_can_hold_are_not_believed(tmp_path: Path) -> None:
    found = image(tmp_path / "a.dcm", RAMP, ImageOrientationPatient=list(AXIAL))
    found.NumberOfFrames = 2**31 - 1
    save(found, tmp_path / "a.dcm")
    with pytest.raises(UserError, match=r"a\.dcm: not readable as a DICOM image \(it is cut short\)"):
        dicom(tmp_path)
    found.NumberOfFrames, found.Rows, found.Columns = 1, 65535, 65535
    save(found, tmp_path / "a.dcm")
    with pytest.raises(UserError, match=r"a\.dcm: not readable"):
        dicom(tmp_path)
