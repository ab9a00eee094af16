"""Hundreds of damaged DICOM files: each is read, or refused by name; nothing else ever comes out."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from dicom_files import HU, boxes, image, made, save, scan_of, segmentation, series, structures
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import RLELossless

from laworder.data.sources.dicom import DicomRule, dicom
from laworder.errors import UserError

ROUNDS = 80


def sound(folder: Path) -> list[Path]:
    """One file of each kind, the last of which is damaged again and again."""
    masks = boxes(2, 8, 10)
    slices = series(folder / "ct", scan_of(masks), WindowCenter=100, WindowWidth=300, **HU)
    segmentation(folder / "seg.dcm", [(masks[k], 1, slices[k]) for k in range(2)])
    box = np.array([[1, 1, 0], [7, 1, 0], [7, 6, 0], [1, 6, 0.0]])
    structures(folder / "rt.dcm", {"GTV": [(box, slices[0])]}, space=str(slices[0].FrameOfReferenceUID))
    packed = image(folder / "rle.dcm", scan_of(masks), frames=2, series="2")
    packed.compress(RLELossless)
    save(packed, folder / "rle.dcm")
    colours = np.random.default_rng(0).integers(0, 50, (8, 10), dtype=np.uint8)
    palette = image(folder / "palette.dcm", colours, kind="PALETTE COLOR", series="3")
    for name in ("Red", "Green", "Blue"):
        palette.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [50, 0, 16])
        palette.add_new(f"{name}PaletteColorLookupTableData", "OW", bytes(100))
    save(palette, folder / "palette.dcm")
    lut = image(folder / "lut.dcm", scan_of(masks)[0], series="4", PixelPaddingValue=3)
    lut.VOILUTSequence = [made()]
    lut.VOILUTSequence[0].add_new("LUTDescriptor", "US", [50, 0, 12])
    lut.VOILUTSequence[0].add_new("LUTData", "OW", bytes(100))
    save(lut, folder / "lut.dcm")
    for name, one in (("rle", packed), ("palette", palette), ("lut", lut)):
        segmentation(folder / f"seg_{name}.dcm", [(masks[0], 1, one)], placed=False, study=name)
    return [folder / "ct" / "000.dcm", *(folder / f"{n}.dcm" for n in ("seg", "rt", "rle", "palette", "lut"))]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The bytes cut short, flipped, overwritten, doubled or taken out somewhere."""
    data = bytearray(content)
    kind = rng.randrange(5)
    where = rng.randrange(132, len(data))
    if kind == 0:
        return bytes(data[:where])
    if kind == 1:
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(132, len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        length = rng.choice((1, 2, 4, 8, 64))
        data[where : where + length] = rng.choice((b"\xff", b"\x00", bytes([rng.randrange(256)]))) * length
    elif kind == 3:
        data[where:where] = data[where : where + rng.randrange(1, 64)]
    else:
        del data[where : where + rng.randrange(1, 64)]
    return bytes(data)


def attempt(folder: Path, victim: Path) -> None:
    """Read everything; what goes wrong is a UserError that names a file."""
    said = ""
    try:
        raw = dicom(folder, DicomRule(segments=("*",)), workers=1)
        for unit in raw.units:
            for item in raw.read(unit):
                assert item.pair.image.dtype == item.pair.mask.dtype == np.uint8
                assert item.pair.image.shape[:2] == item.pair.mask.shape
                assert item.pair.image.shape[2] in (1, 3)
    except UserError as error:
        said = str(error)
    # A UID that changed makes another file's reference the one that fits nowhere.
    assert not said or victim.name in said or ".dcm" in said


@pytest.mark.parametrize("place", range(6))
def test_damage_anywhere_is_read_or_refused_by_name(tmp_path: Path, place: int) -> None:
    victim = sound(tmp_path)[place]
    content, rng = victim.read_bytes(), random.Random(place)
    attempt(tmp_path, victim)
    for _ in range(ROUNDS):
        victim.write_bytes(damaged(content, rng))
        attempt(tmp_path, victim)


def odd(rng: random.Random) -> str | bytes:
    return rng.choice(["", "0", "-1", "1e400", "nan", "99999999999", "x", "1\\2\\3", "\\", "3.5", "1.2.840.10008"])


@pytest.mark.parametrize("place", range(6))
def test_odd_values_anywhere_are_read_or_refused_by_name(tmp_path: Path, place: int) -> None:
    """Sound files with senseless values: every text value in turn, in sequences too."""
    victim = sound(tmp_path)[place]
    rng, content = random.Random(place), victim.read_bytes()
    texts = {"DS": b"DS", "IS": b"IS", "CS": b"CS", "UI": b"UI", "LO": b"LO"}
    found = [k for vr in texts.values() for k in range(132, len(content) - 8) if content[k : k + 2] == vr]
    for start in rng.sample(found, min(60, len(found))):
        length = int.from_bytes(content[start + 2 : start + 4], "little")
        value = str(odd(rng)).encode()[:length].ljust(length, b" ")
        victim.write_bytes(content[: start + 4] + value + content[start + 4 + length :])
        attempt(tmp_path, victim)


def test_numbers_without_sense(tmp_path: Path) -> None:
    """Rows, columns, bits, samples and frames that cannot be."""
    victim = sound(tmp_path)[0]
    content = victim.read_bytes()
    bits = ("BitsAllocated", "BitsStored", "HighBit")
    for keyword in ("Rows", "Columns", *bits, "SamplesPerPixel", "PixelRepresentation"):
        for value in (0, 1, 2, 3, 7, 9, 12, 16, 32, 64, 255, 65535):
            victim.write_bytes(content)
            found: Dataset = dcmread(victim)
            setattr(found, keyword, value)
            found.save_as(victim)
            attempt(tmp_path, victim)
