"""Thousands of damaged and odd picture files: each is read, or refused by name; nothing else ever comes out."""

from __future__ import annotations

import contextlib
import io
import random
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.data.sources.folder import FolderSource, scan
from laworder.data.sources.masks import MaskRule
from laworder.errors import UserError

SIDE = 16
PER_FOLDER = 100
RULES = (MaskRule(), MaskRule(index=True), MaskRule(colours={"#ff0000": 1}))

# Pillow mode → formats that can hold it.
SEEDS = {
    "1": ("PNG", "TIFF", "BMP", "PPM", "XBM", "MSP", "PCX"),
    "L": ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "TGA", "PCX", "JPEG2000", "SGI", "SPIDER"),
    "P": ("PNG", "GIF", "BMP", "TIFF", "TGA", "PCX"),
    "LA": ("PNG", "TGA", "JPEG2000", "DDS"),
    "RGB": ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "PPM", "TGA", "ICO", "JPEG2000", "SGI", "DDS", "AVIF", "QOI", "MPO"),
    "RGBA": ("PNG", "TIFF", "WEBP", "TGA", "ICO", "ICNS", "JPEG2000", "DDS", "AVIF", "QOI"),
    "CMYK": ("JPEG", "TIFF"),
    "I;16": ("PNG", "TIFF", "PPM"),
    "I": ("TIFF", "PPM", "PNG"),
    "F": ("TIFF", "PFM", "SPIDER"),
}


def picture(mode: str, rng: random.Random) -> Image.Image:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[4:9, 5:12] = 255
    if rng.random() < 0.5:
        pixels = np.random.default_rng(rng.randrange(2**31)).integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray(pixels.astype(np.uint16) * 16)
    return Image.fromarray(pixels).convert(mode)


def encoded(mode: str, kind: str, rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[274] = rng.randrange(0, 10)  # orientations that exist, and some that do not
    extra = {"exif": exif} if kind in ("JPEG", "PNG", "WEBP", "TIFF") else {}
    picture(mode, rng).save(buffer, "PPM" if kind == "PFM" else kind, **extra)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def writable() -> list[tuple[str, str]]:
    """The combinations that this build of Pillow can write; most of `SEEDS`, whatever its version."""
    found = []
    for mode, kinds in SEEDS.items():
        for kind in kinds:
            with contextlib.suppress(OSError, KeyError, ValueError):
                encoded(mode, kind, random.Random(0))
                found.append((mode, kind))
    assert len(found) >= 40
    assert {mode for mode, _ in found} == set(SEEDS)
    return found


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut short, flipped, overwritten, doubled, or padded; sometimes left whole."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(out)) if out else 0
        what = rng.randrange(6)
        if what == 0:
            del out[at:]
        elif what == 1 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 2:  # headers are where sizes and offsets stand
            for k in range(min(len(out), 4)):
                out[min(at % 64 + k, len(out) - 1)] = rng.choice((0, 1, 127, 128, 255))
        elif what == 3:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif what == 4:
            del out[at : at + rng.randrange(1, 9)]
        else:
            out += out[at:]
    return bytes(out)


ODD = (
    b"",
    b"\0",
    b"\x89PNG\r\n\x1a\n",
    b"GIF89a",
    b"II*\0",
    b"BM",
    b"P6 99999999 99999999 255\n",
    b"P5 0 0 255\n",
    b"text\n",
)


def write_case(folder: Path, number: int, rng: random.Random) -> None:
    """One pair with one damaged file, either the image or the mask, under a suffix that may be another format's."""
    mode, kind = rng.choice(writable())
    data = rng.choice(ODD) if rng.random() < 0.05 else damaged(encoded(mode, kind, rng), rng)
    suffix = rng.choice((".png", ".jpg", ".TIF", ".bmp", f".{kind.lower()[:3]}"))
    suffix = suffix if suffix not in (".pfm", ".msp", ".spi", ".jpe", ".icn", ".avi", ".mpo", ".xbm") else ".png"
    stem = f"c{number:04d}{rng.choice(('', ' ', 'é', '.x', '%s', '{0}'))}"
    whole = io.BytesIO()
    Image.new("L", (SIDE, SIDE)).save(whole, "PNG")
    bad_mask = rng.random() < 0.5
    (folder / "images" / f"{stem}{'.png' if bad_mask else suffix}").write_bytes(whole.getvalue() if bad_mask else data)
    (folder / "masks" / f"{stem}{suffix if bad_mask else '.png'}").write_bytes(data if bad_mask else whole.getvalue())


@pytest.mark.parametrize("batch", range(24))
def test_damaged_files_are_read_or_refused_by_name(
    batch: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(batch)
    for part in ("images", "masks"):
        (tmp_path / part).mkdir()
    for number in range(PER_FOLDER):
        write_case(tmp_path, number, rng)
    rule = RULES[batch % len(RULES)]

    found = scan(tmp_path / "images", tmp_path / "masks", rule=rule, workers=2)

    files = {str(f) for part in ("images", "masks") for f in (tmp_path / part).iterdir()}
    assert len(files) == 2 * PER_FOLDER
    # Every problem names a file, and every pair is either usable or named.
    for line in found.problems:
        assert any(line.startswith(f) for f in files), line
        assert line.isprintable()
    named = {f for f in files if any(line.startswith(f) for line in found.problems)}
    usable = {str(f) for pair in found.pairs for f in (pair.image, pair.mask)}
    assert not named & usable
    stems = {Path(f).stem for f in named | usable}
    assert len(stems) == PER_FOLDER
    assert found.problems
    assert found.pairs
    with pytest.raises(UserError) as error:
        FolderSource(tmp_path / "images", tmp_path / "masks", rule=rule)
    assert all(line in str(error.value) for line in found.problems)
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize("batch", range(6))
def test_odd_layouts_end_in_pairs_or_a_user_error(batch: int, tmp_path: Path) -> None:
    """Any tree of files with any names: `FolderSource` makes pairs of it or says what is wrong."""
    rng = random.Random(1000 + batch)
    good = io.BytesIO()
    Image.new("L", (4, 4)).save(good, "PNG")
    for tree in range(50):
        root = tmp_path / str(tree)
        root.mkdir()
        for _ in range(rng.randrange(8)):
            parts = [
                rng.choice(("images", "masks", "a", "b_mask", "GT", ".hidden", "ä")) for _ in range(rng.randrange(3))
            ]
            stem = rng.choice(("x", "y", "x_mask", "X", "y_seg", "_mask", "x.y", "ü", "a\nb"))
            file = root.joinpath(*parts, stem + rng.choice((".png", ".PNG", ".txt", ".jpg", "")))
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_bytes(good.getvalue() if rng.random() < 0.8 else b"junk")
        try:
            source = FolderSource(root, group=rng.choice(("image", "folder")))
        except UserError as error:
            assert str(root) in str(error)  # noqa: PT017 - either outcome is right, and both are checked
        else:
            assert len(source) == len(set(source.names)) > 0
            assert [source.read(i).name for i in range(len(source))] == source.names
