"""`laworder seg predict` on pictures: masks that lie over their pictures, and damage that stops nothing else."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from bright import BrightSegmenter, saved
from PIL import ExifTags, Image

import laworder
from laworder.cli import main
from laworder.data.pairs import Pair, resize_pair
from laworder.errors import UserError
from laworder.order.hub import Preprocessing
from laworder.segmentation.inputs import find_jobs
from laworder.segmentation.pictures import Job, Options, Outcome, Pictures, in_channels, shrunk
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.streaming import stream

CPU = torch.device("cpu")


def predict(*words: str) -> int:
    return main(["seg", "predict", *words, "--device", "cpu"])


def square(height: int = 64, width: int = 96, *, top: int = 8, left: int = 16, side: int = 24) -> np.ndarray:
    """A dark gray picture with one bright square."""
    image = np.full((height, width), 60, np.uint8)
    image[top : top + side, left : left + side] = 220
    return image


def overlap(path: Path, true: np.ndarray) -> float:
    """IoU of a mask file of 0 and 255 and a true mask."""
    with Image.open(path) as picture:
        mask = np.asarray(picture)
    assert set(np.unique(mask)) <= {0, 255}
    assert mask.shape == true.shape
    return float(((mask > 0) & true).sum() / ((mask > 0) | true).sum())


@pytest.mark.parametrize(
    ("name", "result", "kind"),
    [("a.png", "a.png", "PNG"), ("a.jpg", "a.png", "PNG"), ("a.bmp", "a.bmp", "BMP"), ("a.tif", "a.tif", "TIFF")],
)
@pytest.mark.parametrize("mode", ["resize", "window"])
def test_one_picture_in_its_own_format_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, result: str, kind: str, mode: str
) -> None:
    Image.fromarray(square()).save(tmp_path / name, quality=95)
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(tmp_path / name), "--out", str(out), "--mode", mode) == 0
    assert overlap(out / result, square() > 128) > (0.98 if mode == "window" else 0.85)
    with Image.open(out / result) as picture:
        assert (picture.format, picture.size) == (kind, (96, 64))
    assert "1 of 1 predicted" in capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == sorted([result, "predictions.csv", "predictions.json"])


def test_a_picture_of_the_models_size_gives_the_models_own_mask(tmp_path: Path) -> None:
    model = laworder.create("order_backbone")
    model.preprocessing = Preprocessing(size=32, threshold=0.501)
    model.save_pretrained(tmp_path / "model")
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert predict(str(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(tmp_path), "--probabilities") == 2
    out = tmp_path / "out"
    assert predict(str(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(out), "--probabilities") == 0
    p = Predictor(model, CPU)(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0, 0].numpy()
    with Image.open(out / "a.png") as mask, Image.open(out / "a_probability.png") as levels:
        assert np.array_equal(np.asarray(mask) > 0, p > 0.501)
        assert np.abs(np.asarray(levels) / 65535 - p).max() < 1e-4


def test_shrinking_is_that_of_training() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (50, 37, 3), dtype=np.uint8)
    pair = Pair(image=pixels, mask=np.zeros((50, 37), np.uint8), name="a", group="a")
    for channels in (1, 3):
        expected, _ = resize_pair(pair, 32, channels)
        assert np.array_equal(shrunk(in_channels(pixels, channels), 32).numpy(), expected.transpose(2, 0, 1))


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_mask_lies_over_its_picture_as_stored(tmp_path: Path, turn: int) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = turn
    Image.fromarray(square()).save(tmp_path / "a.png", exif=exif)
    words = [saved(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(tmp_path / "out"), "--mode", "window"]
    assert predict(*words, "--probabilities", "--overlays") == 0
    assert overlap(tmp_path / "out" / "a.png", square() > 128) > 0.98
    with Image.open(tmp_path / "out" / "a_probability.png") as levels:
        assert levels.size == (96, 64)
    with Image.open(tmp_path / "out" / "a_overlay.png") as upright:  # for eyes, so it stands upright
        assert upright.size == ((96, 64) if turn < 5 else (64, 96))


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    for number, name in enumerate(("a.jpg", "a.png", "b/c.png", "d e é.webp")):
        Image.fromarray(square(top=4 * number)).save(folder / name)
    (folder / "b" / "broken.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "empty.jpg").touch()
    (folder / "notes.txt").write_text("not a picture")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


def test_damaged_files_are_named_and_the_rest_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path)
    out = folder / "masks"
    words = [saved(tmp_path / "model"), str(folder), "--out", str(out), "--batch", "2"]
    assert predict(*words) == 1
    captured = capsys.readouterr()
    assert "4 of 6 predicted; 2 could not be read" in captured.out
    complaints = captured.err.splitlines()
    assert len(complaints) == 3
    assert "passed over, being neither picture nor volume: 1 file" in complaints[0]
    assert any("broken.png: not readable" in line for line in complaints)
    assert any("empty.jpg: not readable" in line for line in complaints)
    rows = {row["file"]: row for row in csv.DictReader((out / "predictions.csv").read_text().splitlines())}
    assert [rows[name]["mask"] for name in ("a.jpg", "a.png", "b/c.png", "d e é.webp")] == [
        "a.jpg.png",  # both would be a.png
        "a.png.png",
        "b/c.png",
        "d e é.png",
    ]
    assert rows["b/broken.png"]["mask"] == ""
    assert "not readable" in rows["b/broken.png"]["error"]
    for number, name in enumerate(("a.jpg", "a.png", "b/c.png", "d e é.webp")):
        assert overlap(out / rows[name]["mask"], square(top=4 * number) > 128) > 0.8
        assert float(rows[name]["lesion_share"]) == pytest.approx(24 * 24 / (64 * 96), rel=0.1)
    about = json.loads((out / "predictions.json").read_text())
    assert about["manifest"]["kind"] == "seg predict"
    assert "Not a medical device" in about["note"]
    # Masks that are there already are no input, and may be left as they are.
    before = (out / "b" / "c.png").stat().st_mtime_ns
    assert predict(*words, "--skip-existing") == 1
    assert "0 of 2 predicted" in capsys.readouterr().out
    assert (out / "b" / "c.png").stat().st_mtime_ns == before
    assert list(out.rglob(".*")) == []


def test_classes_and_thresholds(tmp_path: Path) -> None:
    Image.fromarray(square()).save(tmp_path / "a.png")
    words = [str(tmp_path / "a.png"), "--mode", "window", "--out"]
    assert predict(saved(tmp_path / "three", classes=3), *words, str(tmp_path / "classes")) == 0
    with Image.open(tmp_path / "classes" / "a.png") as mask:
        assert np.array_equal(np.asarray(mask) == 1, square() > 128)
    model = saved(tmp_path / "one")
    assert predict(model, *words, str(tmp_path / "all"), "--threshold", "0") == 0
    with Image.open(tmp_path / "all" / "a.png") as mask:
        assert np.asarray(mask).min() == 255


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{in}/nothing.png"], "no such file or folder"),
        (["{in}/empty"], "holds no pictures, no DICOM and no NIfTI volumes"),
        (["{in}", "--out", "{in}"], "is where the input lies"),
        (["{in}/a.png", "--intensity", "3,3"], "must lie below the second"),
        (["{in}/a.png", "--mode", "windw"], "did you mean 'window'"),
        (["{in}/a.png", "--device", "gpu"], "device: 'gpu' is none"),
    ],
)
def test_bad_requests_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    Image.fromarray(square()).save(tmp_path / "a.png")
    (tmp_path / "empty").mkdir()
    model = saved(tmp_path / "model")
    given = [word.replace("{in}", str(tmp_path)) for word in words]
    code = main(["seg", "predict", model, *given])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_models_that_cannot_read_pictures_are_refused() -> None:
    with pytest.raises(UserError, match="takes 5 channels"):
        Predictor(BrightSegmenter(in_channels=5), CPU)
    with pytest.raises(UserError, match="3 dimensions"):
        Predictor(laworder.create("order_backbone", spatial_dims=3), CPU)


def test_a_full_disk_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(square()).save(tmp_path / "a.png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").mkdir()  # stands for any refusal of the operating system
    assert predict(saved(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(tmp_path / "out")) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.nii"])
def test_a_mask_is_written_last(tmp_path: Path, name: str) -> None:
    """A file whose mask is there is done: `--skip-existing` after a kill leaves no probability map out."""
    if name == "a.tif":
        tifffile.imwrite(tmp_path / name, np.stack([square()] * 2), photometric="minisblack")
    elif name == "a.nii":
        nibabel.save(nibabel.Nifti1Image(square()[..., None].repeat(3, 2), np.eye(4)), tmp_path / name)
    else:
        Image.fromarray(square()).save(tmp_path / name)
    out = tmp_path / "out"
    (out / name.replace("a.", "a_probability.")).mkdir(parents=True)
    words = [saved(tmp_path / "model"), str(tmp_path / name), "--out", str(out), "--probabilities"]
    assert predict(*words) == 2
    assert not (out / name).exists()
    (out / name.replace("a.", "a_probability.")).rmdir()
    assert predict(*words, "--skip-existing") == 0
    assert (out / name).is_file()
    assert (out / name.replace("a.", "a_probability.")).is_file()


def test_stages_overlap_and_hold_little() -> None:
    """Reading item n + 1 must not wait for inference of item n: with a barrier of both, neither could go on alone."""
    both = threading.Barrier(2, timeout=20)
    held = {"now": 0, "most": 0}
    lock = threading.Lock()

    def count(change: int) -> None:
        with lock:
            held["now"] += change
            held["most"] = max(held["most"], held["now"])

    def read(job: int) -> int:
        count(1)
        if job == 60:
            both.wait()
        if job % 7 == 3:
            count(-1)
            raise UserError(f"{job} is damaged")
        return job

    def infer(items: list[int]) -> list[int]:
        if 58 in items:
            both.wait()  # the reader of job 60 is here at the same time
        return [10 * item for item in items]

    def write(item: int, result: int) -> int:
        count(-1)
        assert result == 10 * item
        return item

    found = list(
        stream(range(200), read=read, infer=infer, write=write, refuse=lambda job, _: -job, batch=2, workers=2)  # type: ignore[arg-type]
    )
    assert sorted(found, key=abs) == [-n if n % 7 == 3 else n for n in range(200)]
    assert held["most"] <= 2 * (2 * 2 + 2) + 2


def test_an_error_of_ours_is_not_swallowed() -> None:
    def broken(_: object) -> list[int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(
            stream(
                range(9),
                read=lambda job: job,
                infer=broken,
                write=lambda item, _: item,
                refuse=lambda job, _: job,
                batch=2,
                workers=2,
            )
        )


def test_names_of_results(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    jobs, passed = find_jobs(folder, tmp_path / "out")
    assert passed == 1
    assert len({str(job.target).lower() for job in jobs}) == len(jobs) == 6
    job = Job(tmp_path / "a.nii.gz", tmp_path / "out" / "a.nii.gz")
    assert job.beside("probability", ".nii.gz").name == "a_probability.nii.gz"


def test_reading_from_a_folder_is_what_is_written(tmp_path: Path) -> None:
    """The three stages by hand are what the command does."""
    Image.fromarray(square()).save(tmp_path / "a.png")
    stages = Pictures(Predictor(BrightSegmenter(), CPU), Options())
    item = stages.read(Job(tmp_path / "a.png", tmp_path / "out" / "a.png"))
    outcome = stages.write(item, stages.infer([item])[0])
    assert isinstance(outcome, Outcome)
    assert outcome.highest > 0.9
    assert predict(saved(tmp_path / "model"), str(tmp_path / "a.png"), "--out", str(tmp_path / "two")) == 0
    assert (tmp_path / "two" / "a.png").read_bytes() == (tmp_path / "out" / "a.png").read_bytes()
