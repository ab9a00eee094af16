"""Any picture file → uint8 pixels, and nothing but `UserError`, naming the file, when that cannot be.

What is decided here, once:

- 8-bit gray, palette, RGB, CMYK, YCbCr and Lab become gray (H×W×1) or RGB (H×W×3).
- Alpha is laid over black: what is transparent is outside the picture.
- 16-bit, 32-bit and float gray is scaled by its own range, from its 0.05th to its 99.95th percentile, so that neither a
  12-bit scan in 16 bits is black nor one hot pixel makes it so. Values that fit 8 bits already stay as they are.
- A file is one picture: animations and multi-page files are refused; `laworder data prepare folder` reads stacks.
- EPS and WMF are not read, because that would run another program; pictures above `MAX_PIXELS` are not decoded.
"""

from __future__ import annotations

import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image

from laworder.errors import UserError

MAX_PIXELS = 2**26
MAX_STACK = 2**29  # all frames of a stack together
_REFUSED_FORMATS = frozenset({"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG", "IPTC"})
_REFUSED_SUFFIXES = frozenset(
    {".pdf", ".eps", ".ps", ".wmf", ".emf", ".bufr", ".grib", ".h5", ".hdf", ".mpg", ".mpeg", ".iim", ".palm"}
)

# Decoders meet damaged files with whatever their arithmetic runs into; all of it means "this file cannot be read".
_DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    AssertionError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def shown(path: Path | str) -> str:
    """A path as one printable line, whatever its name holds."""
    text = str(path).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@lru_cache(maxsize=1)
def picture_suffixes() -> frozenset[str]:
    """Suffixes, in lower case, of the files that count as pictures."""
    return frozenset(Image.registered_extensions()) - _REFUSED_SUFFIXES


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.OPEN if name not in _REFUSED_FORMATS)


class _Hush:
    """Silences Pillow's remarks on damaged metadata while any thread decodes.

    `warnings.catch_warnings` swaps global state, so threads that overlap would restore each other's filters: here only
    the first in and the last out touch them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._caught: warnings.catch_warnings[None] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._depth == 0:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                # Ours too: Pillow blames some of its remarks on the caller.
                warnings.filterwarnings("ignore", module=r"(PIL|pydicom)(\.|$)|laworder\.data\.sources\.")
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0 and self._caught is not None:
                    self._caught.__exit__(None, None, None)
                    self._caught = None


hushed = _Hush()


def open_picture(path: Path) -> tuple[Image.Image, int]:
    """The decoded picture as it is stored, and its EXIF orientation (1: upright)."""
    if not path.is_file():
        raise UserError(f"{shown(path)}: {'not a file' if path.exists() else 'no such file'}")
    try:
        with hushed(), Image.open(path, formats=_formats()) as picture:
            _refuse(path, picture)
            orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
            picture.load()
            return picture.copy(), orientation if orientation in range(1, 9) else 1
    except UserError:
        raise
    except _DECODER_ERRORS as error:
        raise UserError(f"{shown(path)}: not readable as a picture ({_reason(error)}); replace or remove it") from error


def is_stack(path: Path) -> bool:
    """Whether a file holds several frames. False where it cannot be opened: reading it will say why."""
    return stack_size(path) > 1


def stack_size(path: Path) -> int:
    """How many frames a file holds; 1 where it cannot be opened."""
    try:
        with hushed(), Image.open(path, formats=_formats()) as picture:
            return getattr(picture, "n_frames", 1)
    except _DECODER_ERRORS:
        return 1


def open_frames(path: Path) -> list[Image.Image]:
    """Every frame of a stack (a multi-page TIFF), as it is stored; they must be of one size and kind."""
    if not path.is_file():
        raise UserError(f"{shown(path)}: {'not a file' if path.exists() else 'no such file'}")
    try:
        with hushed(), Image.open(path, formats=_formats()) as picture:
            count = getattr(picture, "n_frames", 1)
            _refuse_size(path, picture.size, count)
            frames: list[Image.Image] = []
            for number in range(count):
                picture.seek(number)
                _refuse_size(path, picture.size, count)
                frames.append(picture.copy())
    except UserError:
        raise
    except _DECODER_ERRORS as error:
        raise UserError(f"{shown(path)}: not readable as a stack ({_reason(error)}); replace or remove it") from error
    kinds = {(frame.size, frame.mode) for frame in frames}
    if len(kinds) > 1:
        raise UserError(f"{shown(path)}: its {len(frames)} frames are of different sizes or kinds; save them apart")
    return frames


def _refuse_size(path: Path, size: tuple[int, int], count: int) -> None:
    if size[0] * size[1] > MAX_PIXELS or size[0] * size[1] * count > MAX_STACK:
        raise UserError(
            f"{shown(path)}: {count} frames of {size[0]}×{size[1]} pixels are more than the {MAX_STACK} pixels allowed"
        )


def _refuse(path: Path, picture: Image.Image) -> None:
    width, height = picture.size
    if width < 1 or height < 1:
        raise UserError(f"{shown(path)}: an empty picture ({width}×{height})")
    if width * height > MAX_PIXELS:
        raise UserError(
            f"{shown(path)}: {width}×{height} pixels are more than the {MAX_PIXELS} allowed; scale it down or tile it"
        )
    frames = getattr(picture, "n_frames", 1)
    if frames > 1 and picture.format not in ("MPO", "ICNS", "PSD"):  # there the first frame is the whole picture
        raise UserError(f"{shown(path)}: holds {frames} frames; a file must hold one picture")


def _reason(error: BaseException) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "no known picture format"
    words = " ".join(str(error).split())
    return shown(words[:120]) if words else type(error).__name__


def upright(picture: Image.Image, orientation: int) -> Image.Image:
    """The picture turned as its EXIF orientation asks."""
    return picture.transpose(_TURNS[orientation]) if orientation in _TURNS else picture


def is_deep(picture: Image.Image) -> bool:
    """Whether its gray values have more than 8 bits."""
    return picture.mode == "F" or picture.mode.startswith("I")


def flat(picture: Image.Image) -> Image.Image:
    """8-bit gray ("L") or "RGB", with palette resolved and alpha laid over black. Not for deep pictures."""
    if picture.mode in ("1", "L"):
        return picture.convert("L")
    if "transparency" in picture.info or picture.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        clear = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, (0, 0, 0, 255)), clear).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def deep_to_bytes(values: np.ndarray) -> UInt8[np.ndarray, "*shape"]:
    """Deep gray values scaled by their own range; see the module's first lines."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, dtype=np.uint8)
    numbers = np.where(finite, values, values[finite].min()).astype(np.float64)
    least, most = float(numbers.min()), float(numbers.max())
    if least >= 0 and 1 < most <= 255 and bool((numbers == np.floor(numbers)).all()):
        return numbers.astype(np.uint8)
    low, high = np.percentile(numbers, (0.05, 99.95))
    if high <= low:
        low, high = least, most
    if high <= low:
        return np.zeros(values.shape, dtype=np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (np.clip(numbers, low, high) - low) / (high - low)
    return (np.nan_to_num(scaled) * 255 + 0.5).astype(np.uint8)


def image_pixels(picture: Image.Image) -> UInt8[np.ndarray, "h w c"]:
    """Any decoded picture as H×W×1 or H×W×3."""
    if is_deep(picture):
        return deep_to_bytes(np.asarray(picture))[..., None]
    pixels = np.array(flat(picture), dtype=np.uint8)
    if pixels.ndim == 3 and picture.mode in ("P", "LA", "La", "PA") and _is_gray(pixels):
        pixels = pixels[..., :1].copy()
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _is_gray(pixels: UInt8[np.ndarray, "h w 3"]) -> bool:
    return bool((pixels == pixels[..., :1]).all())


def read_image(path: Path) -> UInt8[np.ndarray, "h w c"]:
    """The picture in a file, upright."""
    picture, orientation = open_picture(path)
    return converted(path, upright(picture, orientation))


def converted(path: Path, picture: Image.Image) -> UInt8[np.ndarray, "h w c"]:
    """`image_pixels` with the file's name on what goes wrong."""
    try:
        with hushed():
            return image_pixels(picture)
    except _DECODER_ERRORS as error:
        raise UserError(f"{shown(path)}: its {picture.mode} pixels cannot be converted ({_reason(error)})") from error
