"""A DICOM file's header, what can be said about its pixels without decoding them, and what a frame knows about itself.

What goes wrong is told in our words: pydicom's own would quote the file, and with it, perhaps, the patient.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.images import picture_suffixes, shown
from laworder.errors import MissingExtraError, UserError

SUFFIXES = frozenset({".dcm", ".dicom", ".ima"})
_DAMAGE = (
    NotImplementedError,
    OSError,
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    AssertionError,
    MemoryError,
    RecursionError,
    struct.error,
    zlib.error,
)
_NEEDED = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID")
_IMAGE_NEEDS = ("Rows", "Columns")
_PACKAGES = {
    "JPEG": "pylibjpeg pylibjpeg-libjpeg (under the GPL)",
    "JPEG Lossless": "pylibjpeg pylibjpeg-libjpeg (under the GPL), or python-gdcm",
    "JPEG-LS": "pyjpegls",
    "JPEG 2000": "pylibjpeg pylibjpeg-openjpeg",
    "High-Throughput": "pylibjpeg pylibjpeg-openjpeg",
}
"""What decodes a transfer syntax, by the longest beginning of its name."""


def is_dicom(path: Path) -> bool:
    """By its suffix, or, where that is no picture's, by the letters DICM after the preamble.

    Files are often named by their UID, and what follows its last dot is no suffix.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return True
    if suffix in picture_suffixes():
        return False
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def read_dataset(path: Path, *, pixels: bool = False) -> Any:
    """A file's dataset, of whatever kind; UserError names it when it is damaged."""
    try:
        from pydicom.errors import InvalidDicomError
    except ImportError as error:
        raise MissingExtraError("pydicom", "medical") from error
    try:
        with quiet():
            return _with_syntax(_read(path, pixels))
    except InvalidDicomError as error:
        raise UserError(f"{shown(path)}: not a DICOM file; replace or remove it") from error
    except damage() as error:
        raise damaged(path, error) from error


def _read(path: Path, pixels: bool) -> Any:
    """A dataset; old writers leave out the preamble, and what says DICM after it."""
    import pydicom
    from pydicom.errors import InvalidDicomError

    try:
        return pydicom.dcmread(path, stop_before_pixels=not pixels)
    except InvalidDicomError:
        found = pydicom.dcmread(path, stop_before_pixels=not pixels, force=True)
        if not str(found.get("SOPClassUID", "")).startswith("1.2."):
            raise
        return found


def _with_syntax(found: Any) -> Any:
    """The dataset with the transfer syntax in which it was read, where the file does not name it."""
    from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    found.get("SOPClassUID")  # a damaged one is found out here
    if not found.file_meta.get("TransferSyntaxUID"):
        implicit, little = found.original_encoding
        explicit = ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        found.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if implicit else explicit
    return found


def read_header(path: Path, *, pixels: bool = False, image: bool = True) -> Any:
    """A file's dataset with the identifiers that an image, or what is drawn on images, must have."""
    found = read_dataset(path, pixels=pixels)
    try:
        with quiet():
            missing = [name for name in (*_NEEDED, *_IMAGE_NEEDS * image) if not found.get(name)]
    except damage() as error:
        raise damaged(path, error) from error
    if missing:
        raise UserError(f"{shown(path)}: not a DICOM image: it has no {', '.join(missing)}; replace or remove it")
    try:
        with quiet():
            if image:
                _mend(found)
    except damage() as error:
        raise damaged(path, error, "image") from error
    return found


def _mend(header: Any) -> None:
    """What follows from the rest of an image's header, where it is missing."""
    samples = int(header.get("SamplesPerPixel") or 1)
    bits = int(header.get("BitsAllocated") or 16)
    usual = {
        "SamplesPerPixel": samples,
        "PhotometricInterpretation": "MONOCHROME2" if samples == 1 else "RGB",
        "BitsAllocated": bits,
        "BitsStored": bits,
        "PixelRepresentation": 0,
    }
    for name, value in usual.items():
        if header.get(name) in (None, ""):
            setattr(header, name, value)
    if header.get("HighBit") in (None, ""):
        header.HighBit = int(header.BitsStored) - 1
    if samples > 1 and header.get("PlanarConfiguration") in (None, ""):
        header.PlanarConfiguration = 0


def check_length(path: Path, header: Any) -> None:
    """UserError where an image's file is too short for the frames that it says it has: they are not to be believed."""
    try:
        with quiet():
            _check_length(path.stat().st_size, header)
    except damage() as error:
        raise damaged(path, error, "image") from error


def _check_length(size: int, header: Any) -> None:
    syntax = header.file_meta.TransferSyntaxUID
    frame = 8.0  # an empty item of compressed data
    if not syntax.is_transfer_syntax:  # `undecodable` has more to say
        return
    if not syntax.is_compressed:
        # Every other pixel of a row shares its colour then.
        samples = 2 if str(header.PhotometricInterpretation) == "YBR_FULL_422" else int(header.SamplesPerPixel)
        frame = int(header.Rows) * int(header.Columns) * samples * int(header.BitsAllocated) / 8
    if frames_of(header) * frame > size * (1000 if syntax.is_deflated else 1):
        raise EOFError


@lru_cache(maxsize=1)
def damage() -> tuple[type[Exception], ...]:
    """What decoders meet damaged files with: all of it means that a file cannot be read."""
    from pydicom.errors import BytesLengthException

    return (*_DAMAGE, BytesLengthException)


def damaged(path: Path, error: BaseException, what: str = "file") -> UserError:
    """The one line for a file that cannot be read; see the module's first lines."""
    reason = "it is cut short" if isinstance(error, EOFError) else f"damaged: {type(error).__name__}"
    return UserError(f"{shown(path)}: not readable as a DICOM {what} ({reason}); replace or remove it")


def undecodable(header: Any) -> str | None:
    """Why no installed package can decode a file's pixels, and which one would; None where one can."""
    from pydicom.pixels.decoders.base import get_decoder

    syntax = getattr(header.file_meta, "TransferSyntaxUID", None)
    if not syntax:
        return "it does not say how its pixels are stored (no transfer syntax); replace or remove it"
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        kind = syntax.name if syntax.name != str(syntax) else "an unknown transfer syntax"
        return f"its pixels are stored as {kind}, which is not read; convert it to uncompressed DICOM"
    deep = _too_deep_for_pillow(header)
    if decoder.is_available and not (deep and set(decoder.available_plugins) == {"pillow"}):
        return None
    bits = f" with {deep} bits" if deep else ""
    fitting = max((name for name in _PACKAGES if syntax.name.startswith(name)), key=len, default="JPEG")
    return f"its pixels are stored as {syntax.name}{bits}: pip install {_PACKAGES[fitting]}"


def _too_deep_for_pillow(header: Any) -> int:
    """The bits of a pixel where Pillow, which decodes JPEG for pydicom, does so only in 8: JPEG Extended, and colours
    in JPEG 2000. Else 0."""
    from pydicom.uid import JPEG2000, JPEG2000Lossless, JPEGExtended12Bit

    syntax, several = header.file_meta.TransferSyntaxUID, int(header.get("SamplesPerPixel") or 1) > 1
    if syntax != JPEGExtended12Bit and not (several and syntax in (JPEG2000, JPEG2000Lossless)):
        return 0
    bits = int(header.get("BitsStored") or 8)
    return bits if bits > 8 else 0


def frames_of(header: Any) -> int:
    """How many frames a file says that it holds."""
    return max(1, int(header.get("NumberOfFrames") or 1))


class Frame:
    """What is known about one frame: its functional groups where the object has such, else the dataset's own.

    index: from 0
    """

    def __init__(self, header: Any, index: int) -> None:
        self.header, self.index = header, index
        own, shared = header.get("PerFrameFunctionalGroupsSequence"), header.get("SharedFunctionalGroupsSequence")
        self.groups = [own[index]] if own and index < len(own) else []
        self.groups += [shared[0]] if shared else []

    def items(self, sequence: str) -> list[Any]:
        """The items of a functional group, the frame's own before the shared one."""
        return next((list(group.get(sequence)) for group in self.groups if group.get(sequence)), [])

    def get(self, sequence: str, keyword: str) -> Any:
        """An attribute of a functional group, or else of the dataset; None where it is missing or empty."""
        places = [*self.items(sequence)[:1], self.header]
        found = (place.get(keyword) for place in places)
        return next((value for value in found if value is not None and value != ""), None)
