"""Sliding windows and TIFFs: exact where windows agree, flat in memory, tile by tile in and out."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from bright import BrightSegmenter, saved

from laworder.cli import main
from laworder.errors import UserError
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.windows import FLOOR, ArrayRows, blend, gaussian, starts

CPU = torch.device("cpu")


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 1), dtype=np.uint8)


def blended(pixels: np.ndarray, predict: object, *, side: int = 32, overlap: float = 0.25) -> np.ndarray:
    bands = blend(ArrayRows(pixels), predict, side=side, overlap=overlap, batch=3)  # type: ignore[arg-type]
    return np.concatenate(list(bands), axis=1)


@pytest.mark.parametrize("size", [(100, 75), (32, 32), (33, 64), (20, 90), (90, 20), (5, 7), (1, 1)])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.9])
def test_a_model_that_looks_at_pixels_is_not_changed_by_windows(size: tuple[int, int], overlap: float) -> None:
    pixels = noise(*size)
    model = Predictor(BrightSegmenter(), CPU)
    whole = model(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0].numpy()
    np.testing.assert_allclose(blended(pixels, model, overlap=overlap), whole, atol=1e-5)


def test_windows_are_averaged_with_gaussian_weights() -> None:
    """Against the definition, summed over whole-picture arrays."""
    pixels, side = noise(70, 50, 3), 32

    def uneven(windows: torch.Tensor) -> torch.Tensor:
        return windows.float().mean((2, 3), keepdim=True) / 255 * torch.linspace(0, 1, side)

    total, weights = np.zeros((70, 50)), np.zeros((70, 50))
    for y in starts(70, side, 0.5):
        for x in starts(50, side, 0.5):
            window = torch.from_numpy(pixels[y : y + side, x : x + side]).permute(2, 0, 1)[None]
            total[y : y + side, x : x + side] += gaussian(side).numpy() * uneven(window)[0, 0].numpy()
            weights[y : y + side, x : x + side] += gaussian(side).numpy()
    np.testing.assert_allclose(blended(pixels, uneven, overlap=0.5)[0], total / weights, atol=1e-5)


def test_windows_cover_everything_and_overlap_enough() -> None:
    for length in range(1, 300):
        for overlap in (0.0, 0.25, 0.5):
            found = starts(length, 32, overlap)
            assert found[0] == 0
            if length > 32:
                assert found[-1] == length - 32
                assert max(b - a for a, b in itertools.pairwise(found)) <= 32 * (1 - overlap)
            else:
                assert found == [0]
    assert gaussian(32).min() == pytest.approx(FLOOR)
    with pytest.raises(UserError, match="overlap"):
        blended(noise(4, 4), None, overlap=1.0)


def scene(height: int, width: int, *, deep: bool = False) -> np.ndarray:
    image = np.full((height, width), 40, np.uint8)
    image[height // 4 : height // 2, width // 8 : width // 2] = 230
    image[height - height // 3 :, width - width // 4 :] = 230  # down to the last row and column
    return image.astype(np.uint16) * 257 if deep else image


def predict(*words: str) -> int:
    return main(["seg", "predict", *words, "--device", "cpu"])


LAYOUTS = {
    "tiles": {"tile": (64, 96), "compression": "zlib"},
    "strips": {"rowsperstrip": 7, "compression": "zlib"},
    "plain": {},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("colour", [False, True])
def test_large_pages_come_tile_by_tile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, colour: bool
) -> None:
    monkeypatch.setattr("laworder.segmentation.tiffs.MAX_PIXELS", 10_000)
    image = scene(301, 443)
    data = np.stack([image] * 3, axis=-1) if colour else image
    kind = "rgb" if colour else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", data, photometric=kind, resolution=(120, 90), **LAYOUTS[layout])
    out = tmp_path / "out"
    words = [saved(tmp_path / "model", in_channels=3 if colour else 1), str(tmp_path / "a.tif"), "--out", str(out)]
    assert predict(*words, "--probabilities") == 0
    with tifffile.TiffFile(out / "a.tif") as file:
        assert np.array_equal(file.asarray() > 0, image > 128)
        assert file.pages[0].tags["XResolution"].value == (120, 1)
        assert file.pages[0].tags["YResolution"].value == (90, 1)
    levels = tifffile.imread(out / "a_probability.tif") / 65535
    assert np.array_equal(levels > 0.5, image > 128)
    assert predict(*words, "--mode", "resize") == 1


def test_stacks_keep_their_pages(tmp_path: Path) -> None:
    pages = [scene(40 + 5 * k, 60) for k in range(4)]
    with tifffile.TiffWriter(tmp_path / "a.tiff") as writer:
        for page in pages:
            writer.write(page, photometric="minisblack", contiguous=False, metadata=None)
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(tmp_path / "a.tiff"), "--out", str(out), "--mode", "window") == 0
    with tifffile.TiffFile(out / "a.tiff") as file:
        assert len(file.pages) == 4
        for page, true in zip(file.pages, pages, strict=True):
            assert np.array_equal(page.asarray() > 0, true > 128)
    assert (out / "predictions.csv").read_text().splitlines()[1].startswith("a.tiff,a.tiff,4,")


@pytest.mark.parametrize("kind", ["palette", "miniswhite", "planar", "rgba"])
def test_pages_of_other_kinds(tmp_path: Path, kind: str) -> None:
    image = scene(48, 64)
    colours = np.zeros((3, 256), np.uint16)
    colours[:, 1] = 65535
    data, settings = {
        "palette": ((image > 128).astype(np.uint8), {"photometric": "palette", "colormap": colours}),
        "miniswhite": (255 - image, {"photometric": "miniswhite"}),
        "planar": (np.stack([image] * 3), {"photometric": "rgb", "planarconfig": "separate"}),
        "rgba": (np.stack([image] * 3 + [image * 0 + 255], -1), {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
    }[kind]
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        for _ in range(2):
            writer.write(data, contiguous=False, metadata=None, **settings)
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(tmp_path / "a.tif"), "--out", str(out), "--mode", "window") == 0
    assert np.array_equal(tifffile.imread(out / "a.tif", key=1) > 0, image > 128)


def test_deep_values_need_a_range_only_where_a_page_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.stack([scene(50, 60, deep=True)] * 2), photometric="minisblack")
    words = [saved(tmp_path / "model"), str(tmp_path / "a.tif"), "--out", str(tmp_path / "out"), "--mode", "window"]
    assert predict(*words) == 0
    assert np.array_equal(tifffile.imread(tmp_path / "out" / "a.tif", key=0) > 0, scene(50, 60) > 128)
    monkeypatch.setattr("laworder.segmentation.tiffs.MAX_PIXELS", 1000)
    assert predict(*words) == 1
    assert "need --intensity LOW,HIGH" in capsys.readouterr().err
    assert predict(*words, "--intensity", "0,65535") == 0
    assert np.array_equal(tifffile.imread(tmp_path / "out" / "a.tif", key=1) > 0, scene(50, 60) > 128)


def test_damaged_tiffs_are_named_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pages = np.stack([noise(64, 64, k)[..., 0] for k in range(3)])
    tifffile.imwrite(folder / "good.tif", pages, photometric="minisblack", compression="zlib")
    whole = (folder / "good.tif").read_bytes()
    middle = bytearray(whole)
    middle[3000:9000] = bytes(6000)
    (folder / "holes.tif").write_bytes(middle)
    (folder / "short.tif").write_bytes(whole[:200])
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(folder), "--out", str(out)) == 1
    captured = capsys.readouterr()
    assert "1 of 3 predicted; 2 could not be read" in captured.out
    assert "holes.tif" in captured.err
    assert "short.tif" in captured.err
    assert sorted(p.name for p in out.iterdir()) == ["good.tif", "predictions.csv", "predictions.json"]


CHILD = """
import re, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from bright import BrightSegmenter
from laworder.cli import main
code = main(["seg", "predict", *sys.argv[1:], "--device", "cpu"])
# Not getrusage's: that begins with what the parent held.
print("peak", re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def peak_mb(*words: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": ""},
    )
    return int(done.stdout.split()[-1]) / 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_picture(tmp_path: Path) -> None:
    """9000 × 9000 RGB is 243 MB decoded, and 648 MB as a map of float64; the real bound is benchmarked at 20,000²."""
    model = saved(tmp_path / "model", in_channels=3, size=256)
    peaks = []
    for height in (9000, 18_000):
        rows = np.zeros((256, 9000, 3), np.uint8)
        rows[:, 2000:5000] = 230
        tiles = -(-height // 256) * -(-9000 // 256)
        tifffile.imwrite(
            tmp_path / "a.tif",
            (rows[:, :256] for _ in range(tiles)),
            shape=(height, 9000, 3),
            dtype=np.uint8,
            tile=(256, 256),
            photometric="rgb",
            compression="zlib",
        )
        peaks.append(peak_mb(model, str(tmp_path / "a.tif"), "--out", str(tmp_path / "out")))
    assert peaks[0] < 900
    assert peaks[1] - peaks[0] < 60
