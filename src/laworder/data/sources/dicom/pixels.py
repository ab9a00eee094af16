"""A frame's stored values → the gray or RGB bytes that are looked at.

Gray goes through the steps of PS3.4 N.2: the bits that are not in use are cleared (old files keep overlays there, with
whatever is written in them), modality LUT or rescale, window or VOI LUT, and MONOCHROME1 is inverted. A window that is
asked for comes before the file's own; of several in a file the first counts, and a VOI LUT before a window. Pixels that
the file calls padding are black. Palettes and YBR become RGB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Shaped, UInt8

from laworder.data.sources.dicom.header import Frame, damage, damaged, frames_of, undecodable
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.images import MAX_PIXELS, deep_to_bytes, shown
from laworder.data.sources.volumes import windowed
from laworder.errors import UserError

Range = tuple[float, float]
SAMPLED = 16
"""Slices of a series that are looked at to find its range."""


def stored_values(path: Path, header: Any, index: int) -> Shaped[np.ndarray, "h w *c"]:
    """One decoded frame: as it is stored where it is gray or has a palette, else as RGB."""
    try:
        why = undecodable(header)
        too_large = header.Rows * header.Columns > MAX_PIXELS
    except damage() as error:
        raise damaged(path, error, "image") from error
    if why is not None:
        raise UserError(f"{shown(path)}: {why}")
    if too_large:
        raise UserError(f"{shown(path)}: more than the {MAX_PIXELS} pixels allowed; scale it down or tile it")
    try:
        from pydicom.pixels.utils import pixel_array

        with quiet():
            _check_pixels(header)
            # Without an index where there is one frame: pydicom then checks the length of the data.
            place = index if frames_of(header) > 1 else None
            values = pixel_array(header, index=place, correct_unused_bits=False)  # `used_bits` does, for all files
            expected = (int(header.Rows), int(header.Columns))
    except damage() as error:
        raise damaged(path, error, "image") from error
    if values.shape not in (expected, (*expected, 3)):
        raise UserError(f"{shown(path)}: its pixels are not what its header says; replace or remove it")
    return values


def _check_pixels(header: Any) -> None:
    """EOFError where uncompressed pixels end too early. (How long a file must be at least, `check_length` asks.)"""
    from pydicom.pixels.utils import get_expected_length

    stored = header.get("PixelData")  # none where they are floating point numbers
    plain = not header.file_meta.TransferSyntaxUID.is_compressed
    if plain and stored is not None and len(stored) < get_expected_length(header):
        raise EOFError


def shown_pixels(
    path: Path, header: Any, index: int, *, window: Range | None = None, own_range: Range | None = None
) -> UInt8[np.ndarray, "h w c"]:
    """One frame as it is looked at, not yet turned.

    window: black and white in the file's units, instead of its own
    own_range: the same for a file without a window; its 0.05th and 99.95th percentile where None
    """
    stored = stored_values(path, header, index)
    try:
        with quiet():
            if not _is_gray(header):
                return _colour(stored, header)
            frame = Frame(header, index)
            gray = _gray(frame, used_bits(stored, header), window, own_range)
    except damage() as error:
        raise damaged(path, error, "image") from error
    return gray[..., None]


def own_range(frames: Sequence[tuple[Path, int]], opened: Callable[[Path], Any]) -> Range | None:
    """Black and white for a series whose files name no window: the 0.05th and 99.95th percentile of a sample of it.

    None where they name one, or hold colours or plain bytes, which are shown as they are. A frame that cannot be read
    is passed over here: what is wrong with it is said where it is needed.
    """
    sample: list[Float32[np.ndarray, " n"]] = []
    for path, index in frames[:: max(1, len(frames) // SAMPLED)]:
        try:
            header = opened(path)
            if not _is_gray(header) or _has_window(path, header, index):
                return None
            sample.append(_gray_values(path, header, index))
        except UserError:
            continue
    values = np.concatenate([np.zeros(0, dtype=np.float32), *sample])
    values = values[np.isfinite(values)]
    low, high = np.percentile(values, (0.05, 99.95)) if values.size else (0.0, 1.0)
    return float(low), float(high if high > low else low + 1)


def _gray_values(path: Path, header: Any, index: int) -> Float32[np.ndarray, " n"]:
    """A sample of a gray frame's values in the file's units, without padding."""
    stored = stored_values(path, header, index)[::4, ::4]
    try:
        with quiet():
            values = used_bits(stored, header)
            real = modality(values, Frame(header, index))[~_padding(values, header)]
    except damage() as error:
        raise damaged(path, error, "image") from error
    return real.astype(np.float32)


def _is_gray(header: Any) -> bool:
    return str(header.get("PhotometricInterpretation")).startswith("MONOCHROME")


def _has_window(path: Path, header: Any, index: int) -> bool:
    """Whether a frame says how it wants to be seen, or holds bytes that are seen as they are."""
    frame = Frame(header, index)
    try:
        return bool(header.get("VOILUTSequence")) or _window(frame) is not None or _plain_bytes(frame)
    except damage() as error:
        raise damaged(path, error, "image") from error


def used_bits(stored: np.ndarray, header: Any) -> np.ndarray:
    """Values with the bits above BitsStored cleared, or filled with the sign."""
    size, used = 8 * stored.dtype.itemsize, int(header.BitsStored)
    if stored.dtype.kind not in "iu" or not 1 <= used < size or int(header.BitsAllocated) == 1:
        return stored
    # Old files keep 12 bits in the upper part of 16; a decoder of compressed data has put them right.
    below = 0 if header.file_meta.TransferSyntaxUID.is_compressed else max(0, int(header.HighBit) + 1 - used)
    return (stored << max(0, size - used - below)) >> (size - used)


def modality(values: np.ndarray, frame: Frame) -> np.ndarray:
    """Values in the units of the modality: Hounsfield for CT."""
    lut = frame.header.get("ModalityLUTSequence")
    if lut:
        return _looked_up(values, lut[0], frame.header)[0]
    slope = frame.get("PixelValueTransformationSequence", "RescaleSlope")
    intercept = frame.get("PixelValueTransformationSequence", "RescaleIntercept")
    if slope is None and intercept is None:
        return values
    return values.astype(np.float64) * float(1 if slope is None else slope) + float(intercept or 0)


def _gray(frame: Frame, values: np.ndarray, window: Range | None, own_range: Range | None) -> UInt8[np.ndarray, "h w"]:
    numbers = modality(values, frame)
    lut, own = frame.header.get("VOILUTSequence"), _window(frame)
    if window is not None:
        gray = windowed(*window)(numbers)
    elif lut:
        found, bits = _looked_up(np.rint(numbers).astype(np.int64), lut[0], frame.header)
        gray = windowed(0, 2**bits - 1)(found)
    elif own is not None:
        gray = _through(numbers, *own)
    elif _plain_bytes(frame):
        gray = numbers.astype(np.uint8)
    else:
        gray = deep_to_bytes(numbers) if own_range is None else windowed(*own_range)(numbers)
    if frame.header.PhotometricInterpretation == "MONOCHROME1":
        gray = 255 - gray
    gray[_padding(values, frame.header)] = 0
    return gray


def _plain_bytes(frame: Frame) -> bool:
    """Whether the stored values are unsigned bytes and mean nothing else."""
    header = frame.header
    changed = header.get("ModalityLUTSequence") or any(
        frame.get("PixelValueTransformationSequence", name) not in (None, plain)
        for name, plain in (("RescaleSlope", 1), ("RescaleIntercept", 0))
    )
    return int(header.BitsStored) == 8 and not int(header.get("PixelRepresentation") or 0) and not changed


def _window(frame: Frame) -> tuple[float, float, str] | None:
    """The first window: centre, width and function."""
    centre, width = (frame.get("FrameVOILUTSequence", name) for name in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None:
        return None
    centre, width = (float(v[0]) if hasattr(v, "__len__") else float(v) for v in (centre, width))
    function = str(frame.get("FrameVOILUTSequence", "VOILUTFunction") or "LINEAR")
    return (centre, width, function) if np.isfinite([centre, width]).all() and width > 0 else None


def _through(numbers: np.ndarray, centre: float, width: float, function: str) -> UInt8[np.ndarray, "h w"]:
    """PS3.3 C.11.2.1.2 and C.11.2.1.3."""
    if function == "SIGMOID":
        steep = np.clip(-4 * (numbers - centre) / width, -60, 60)
        return (255 / (1 + np.exp(steep)) + 0.5).astype(np.uint8)
    if function == "LINEAR_EXACT":
        return windowed(centre - width / 2, centre + width / 2)(numbers)
    low = centre - 0.5 - (width - 1) / 2
    if width <= 1:
        return ((numbers > low) * 255).astype(np.uint8)
    return windowed(low, low + width - 1)(numbers)


def _looked_up(values: np.ndarray, item: Any, header: Any) -> tuple[np.ndarray, int]:
    """Values through a lookup table (PS3.3 C.11.1), and the bits of its entries."""
    count, first, bits = (int(v) for v in item.LUTDescriptor)
    if first > 0x7FFF and int(values.min()) < 0:  # a signed number that was read as unsigned
        first -= 0x10000
    data = item.LUTData
    count = count % 0x10000 or 0x10000  # 65536 is written as 0, and above 32767 may be read as negative
    if isinstance(data, bytes):
        big = header.file_meta.TransferSyntaxUID == "1.2.840.10008.1.2.2"
        data = np.frombuffer(data, dtype="u1" if len(data) < 2 * count else ">u2" if big else "<u2")
    table = np.atleast_1d(np.asarray(data))[:count].astype(np.int64) & 0xFFFF
    return table[np.clip(values.astype(np.int64) - first, 0, len(table) - 1)], bits


def _padding(values: np.ndarray, header: Any) -> Bool[np.ndarray, "h w"]:
    """Pixels outside the picture: one value, or all from it to the limit of its range."""
    value = header.get("PixelPaddingValue")
    if value is None or value == "":
        return np.zeros(values.shape, dtype=bool)
    limit = header.get("PixelPaddingRangeLimit")
    ends = [int(value), int(value if limit in (None, "") else limit)]
    if values.dtype.kind == "i":  # their VR follows PixelRepresentation; some writers' does not
        ends = [end - 0x10000 if end > 0x7FFF else end for end in ends]
    return (values >= min(ends)) & (values <= max(ends))


def _colour(stored: np.ndarray, header: Any) -> UInt8[np.ndarray, "h w 3"]:
    depth = int(header.BitsStored)
    if header.PhotometricInterpretation == "PALETTE COLOR":
        from pydicom.pixels.processing import apply_color_lut

        stored = apply_color_lut(used_bits(stored, header), header)[..., :3]
        depth = 8 * stored.dtype.itemsize
    if stored.ndim != 3 or stored.shape[2] != 3:
        raise ValueError("neither gray nor colour")
    return stored.astype(np.uint8) if depth <= 8 else (stored >> (depth - 8)).astype(np.uint8)
