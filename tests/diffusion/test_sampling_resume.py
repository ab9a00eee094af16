"""Killed at random moments, or made in parts by several processes: the same set in the end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model_folder
from PIL import Image
from sampling_child import started

from laworder.config import build
from laworder.data.prepared import PreparedSource
from laworder.diffusion.sampling.command import Config, run
from laworder.errors import UserError
from laworder.runs import Lock, LockedError

COUNT, KILLS = 24, 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


def values(model: Path, out: Path, **more: Any) -> dict[str, Any]:
    told = {"phantom.count": COUNT, "steps": 6, "batch": 4, "workers": 2, "device": "cpu", "eta": 0.3, **more}
    return {"model": str(model), "data": "phantom", "out": str(out), **told}


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set as one process makes it, undisturbed."""
    out = tmp_path_factory.mktemp("whole") / "set"
    run(build(Config, values(model, out)))
    return out


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on who made it, and when."""
    parts = ("images", "masks", "provenance")
    files = [file for part in parts for file in (folder / part).iterdir()]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in [*files, folder / "dataset.json"]}


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_set(model: Path, whole: Path, tmp_path: Path) -> None:
    out, chance, kills = tmp_path / "set", random.Random(0), 0
    moments = sorted(chance.sample(range(COUNT - 6), KILLS))
    for there in moments:
        child = started(values(model, out))
        while child.is_alive() and len(list((out / "images").glob("*.png"))) <= there:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.03)
        kills += child.is_alive()
        child.kill()
        child.join()
        assert not (out / "dataset.json").exists()
    assert kills == KILLS, "every kill met a process at work"
    run(build(Config, values(model, out)))
    assert contents(out) == contents(whole)


@pytest.mark.slow
def test_a_signal_ends_it_behind_the_batch(model: Path, whole: Path, tmp_path: Path) -> None:
    child = started(values(model, tmp_path / "set"))
    while child.is_alive() and not list((tmp_path / "set").glob("provenance/*.json")):
        time.sleep(0.002)
    child.terminate()
    child.join(30)
    assert child.exitcode == 143
    done = len(list((tmp_path / "set").glob("provenance/*.json")))
    assert 0 < done < COUNT
    assert done % 4 == 0
    run(build(Config, values(model, tmp_path / "set")))
    assert contents(tmp_path / "set") == contents(whole)


def assert_same(folder: Path, whole: Path) -> None:
    """The same names, masks and index; images to a gray level, since parts have batches of other sizes."""
    mine, theirs = PreparedSource(folder, verify=True), PreparedSource(whole)
    assert list(mine.names) == list(theirs.names)
    for index in range(len(mine)):
        a, b = mine.read(index), theirs.read(index)
        assert np.array_equal(a.mask, b.mask)
        assert np.abs(a.image.astype(int) - b.image).max() <= 1
    told = [json.loads((f / "dataset.json").read_text()) for f in (folder, whole)]
    for key in ("rules", "model", "counts", "classes", "licence"):
        assert told[0][key] == told[1][key]


def test_parts_put_together_are_the_whole(
    model: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    for part in ("2/3", "3/3"):
        run(build(Config, values(model, out, shard=part)))
        assert not (out / "dataset.json").exists()
        assert "whichever part ends last writes" in capsys.readouterr().out
    run(build(Config, values(model, out, shard="1/3")))
    assert_same(out, whole)
    assert sorted(f.name for f in out.iterdir()) == sorted(f.name for f in whole.iterdir() if f.name != "lock")


def test_two_processes_do_not_make_the_same_part(model: Path, tmp_path: Path) -> None:
    config = build(Config, values(model, tmp_path / "set", shard="1/2"))
    place = tmp_path / "set" / "parts" / "1-of-2"
    place.mkdir(parents=True)
    (tmp_path / "set" / "manifest.json").write_text("{}")
    with Lock(place), pytest.raises(LockedError, match="already in use"):
        run(config)


def test_a_part_of_another_set_is_refused(model: Path, tmp_path: Path) -> None:
    run(build(Config, values(model, tmp_path / "set", shard="1/2")))
    with pytest.raises(UserError, match="other settings: seed was 0 and is now 5"):
        run(build(Config, values(model, tmp_path / "set", shard="2/2", seed=5)))


@pytest.mark.slow
def test_processes_of_a_launcher_share_the_work(model: Path, whole: Path, tmp_path: Path) -> None:
    """`torchrun`, and so `accelerate launch`: two processes, one set."""
    told = values(model, tmp_path / "set")
    words = [str(told.pop("model")), str(told.pop("data"))]
    words += [word for name, value in told.items() for word in (f"--{name}", str(value))]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "laworder", "synth", "sample", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{COUNT} synthetic images") == 1
    assert_same(tmp_path / "set", whole)


def test_files_of_an_image_that_was_cut_short_are_not_believed(model: Path, whole: Path, tmp_path: Path) -> None:
    """A kill between image and statement leaves an image without one; it is made again."""
    name = PreparedSource(whole).names[0]
    out = tmp_path / "set"
    run(build(Config, values(model, out, only=f"{name}")))
    image = out / "images" / f"{name}.png"
    Image.new("RGB", (64, 64)).save(image)
    (out / "provenance" / f"{name}.json").unlink()
    run(build(Config, values(model, out, only=f"{name}")))
    assert np.asarray(Image.open(image)).any()
