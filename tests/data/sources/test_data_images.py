"""Every kind of picture file becomes gray or RGB bytes, as documented."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.data.sources import images
from laworder.data.sources.images import read_image, shown
from laworder.errors import UserError

RAMP = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
COLOUR = np.stack([RAMP, RAMP.T, 255 - RAMP], axis=-1)


def save(path: Path, picture: Image.Image, **options: object) -> Path:
    picture.save(path, **options)
    return path


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp", ".tga", ".webp", ".ppm"])
def test_lossless_rgb_comes_back_as_it_was(suffix: str, tmp_path: Path) -> None:
    options = {"lossless": True} if suffix == ".webp" else {}
    assert np.array_equal(read_image(save(tmp_path / f"a{suffix}", Image.fromarray(COLOUR), **options)), COLOUR)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp", ".pgm", ".gif"])
def test_lossless_gray_comes_back_with_one_channel(suffix: str, tmp_path: Path) -> None:
    assert np.array_equal(read_image(save(tmp_path / f"a{suffix}", Image.fromarray(RAMP))), RAMP[..., None])


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    pixels = read_image(save(tmp_path / "a.png", Image.fromarray(RAMP > 100)))
    assert np.array_equal(pixels[..., 0], np.where(RAMP > 100, 255, 0))


def test_palette_is_resolved(tmp_path: Path) -> None:
    coloured = Image.fromarray(COLOUR).quantize(64)
    pixels = read_image(save(tmp_path / "a.png", coloured))
    assert np.array_equal(pixels, np.asarray(coloured.convert("RGB")))
    gray = read_image(save(tmp_path / "b.png", Image.fromarray(RAMP).convert("P")))
    assert np.array_equal(gray, RAMP[..., None])


def test_alpha_is_laid_over_black(tmp_path: Path) -> None:
    alpha = np.full((8, 8), 255, np.uint8)
    alpha[:4], alpha[4] = 0, 128
    pixels = read_image(save(tmp_path / "a.png", Image.fromarray(np.dstack([COLOUR, alpha]))))
    assert not pixels[:4].any()
    assert np.abs(pixels[4].astype(int) - COLOUR[4] // 2).max() <= 2
    assert np.array_equal(pixels[5:], COLOUR[5:])
    gray = read_image(save(tmp_path / "b.png", Image.fromarray(np.dstack([RAMP, alpha]), "LA")))
    assert gray.shape == (8, 8, 1)
    assert not gray[:4].any()
    assert np.array_equal(gray[5:, :, 0], RAMP[5:])


def test_a_transparent_palette_colour_is_black(tmp_path: Path) -> None:
    picture = Image.fromarray((RAMP > 100).astype(np.uint8), "P")
    picture.putpalette([250, 250, 250, 10, 200, 30])
    pixels = read_image(save(tmp_path / "a.png", picture, transparency=0))
    assert not pixels[RAMP <= 100].any()
    assert (pixels[RAMP > 100] == (10, 200, 30)).all()


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    solid = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    for suffix, reach in ((".tif", 1), (".jpg", 6)):
        pixels = read_image(save(tmp_path / f"a{suffix}", solid)).astype(int)
        assert np.abs(pixels - (255, 0, 0)).max() <= reach


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bit_gray_is_scaled_by_its_own_range(suffix: str, tmp_path: Path) -> None:
    twelve_bits = 1000 + np.arange(64 * 64, dtype=np.uint16).reshape(64, 64) % 3000
    pixels = read_image(save(tmp_path / f"a{suffix}", Image.fromarray(twelve_bits)))[..., 0]
    expected = (twelve_bits - 1000.0) / 2999 * 255
    assert np.abs(pixels - expected).max() < 1.5
    hot = twelve_bits.copy()
    hot[0, 0] = 65535
    assert np.abs(read_image(save(tmp_path / f"b{suffix}", Image.fromarray(hot)))[1:, :, 0] - expected[1:]).max() < 1.5


def test_8_bit_values_in_16_bits_stay(tmp_path: Path) -> None:
    pixels = read_image(save(tmp_path / "a.png", Image.fromarray(RAMP.astype(np.uint16))))
    assert np.array_equal(pixels[..., 0], RAMP)


def test_float_pictures_survive_values_that_are_not_numbers(tmp_path: Path) -> None:
    values = np.linspace(-3, 5, 64, dtype=np.float32).reshape(8, 8)
    values[0, :4] = (np.nan, np.inf, -np.inf, np.nan)
    pixels = read_image(save(tmp_path / "a.tif", Image.fromarray(values)))
    assert pixels[-1, -1, 0] == 255
    assert pixels[0, 0, 0] == 0
    for constant in (np.nan, 7.25, 1e38):
        flat = np.full((8, 8), constant, np.float32)
        assert not read_image(save(tmp_path / "b.tif", Image.fromarray(flat))).any()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int, tmp_path: Path) -> None:
    """The eight orientations, against their definition: where the first row and column lie."""
    stored = np.zeros((4, 6, 3), np.uint8)
    stored[0, :, 0], stored[:, 0, 1] = 200, 200  # row 0 is red, column 0 green
    exif = Image.Exif()
    exif[274] = orientation
    pixels = read_image(save(tmp_path / "a.png", Image.fromarray(stored), exif=exif))
    edges = {"top": pixels[0], "bottom": pixels[-1], "left": pixels[:, 0], "right": pixels[:, -1]}
    row, column = [
        ("top", "left"), ("top", "right"), ("bottom", "right"), ("bottom", "left"),
        ("left", "top"), ("right", "top"), ("right", "bottom"), ("left", "bottom"),
    ][orientation - 1]  # fmt: skip
    assert (edges[row][:, 0] == 200).all()
    assert (edges[column][:, 1] == 200).all()
    assert pixels.shape[:2] == ((4, 6) if orientation < 5 else (6, 4))


def test_more_than_one_picture_in_a_file_is_refused(tmp_path: Path) -> None:
    pages = [Image.fromarray(RAMP), Image.fromarray(RAMP.T.copy())]
    for name in ("a.tif", "a.gif"):
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
        with pytest.raises(UserError, match=f"{name}: holds 2 frames"):
            read_image(tmp_path / name)


def test_bombs_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "a.png", Image.new("1", (20_000, 20_000)))  # 50 kB that would become 1.2 GB
    with pytest.raises(UserError, match=r"a\.png: not readable"):
        read_image(path)
    path = save(tmp_path / "b.png", Image.new("1", (9000, 9000)))
    with pytest.raises(UserError, match=r"b\.png: 9000×9000 pixels are more"):
        read_image(path)
    monkeypatch.setattr(images, "MAX_PIXELS", 9000 * 9000)
    assert read_image(path).shape == (9000, 9000, 1)


def test_eps_is_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    with pytest.raises(UserError, match=r"a\.png: not readable as a picture \(no known picture format\)"):
        read_image(path)
    assert ".eps" not in images.picture_suffixes()
    assert {".png", ".jpg", ".tif", ".bmp", ".webp"} <= images.picture_suffixes()


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_image(tmp_path / "none.png")
    with pytest.raises(UserError, match="not a file"):
        read_image(tmp_path)
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(UserError, match="not a file"):
        read_image(tmp_path / "pipe.png")


def test_names_are_shown_on_one_printable_line() -> None:
    assert shown(Path("a\nb\udc80\x1b[0mé.png")) == "a\\nb\\udc80\\x1b[0mé.png"


def test_warning_filters_are_as_before_after_reading_on_many_threads(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", Image.fromarray(RAMP))
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [read_image(path) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before
