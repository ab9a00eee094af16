"""`laworder synth sample`: what it writes is prepared data that says where it came from, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import model_folder
from PIL import Image

from laworder.cli import main
from laworder.config import build
from laworder.data.opening import Phantom, open_source
from laworder.data.prepared import PreparedSource, read_index
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import model_hash, read_card
from laworder.diffusion.sampling.command import Config, plan, run
from laworder.diffusion.sampling.drawing import Drawing
from laworder.diffusion.sampling.engine import Engine
from laworder.diffusion.sampling.settings import recipe
from laworder.errors import UserError

COUNT = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("tiny") / "model")


def config(model: Path, out: Path, **more: Any) -> Config:
    told = {"phantom__count": COUNT, "steps": 2, "batch": 2, "device": "cpu", "data": "phantom", **more}
    return build(Config, {"model": model, "out": out, **{k.replace("__", "."): v for k, v in told.items()}})


def pictures(folder: Path) -> dict[str, np.ndarray]:
    return {file.stem: np.asarray(Image.open(file)) for file in sorted((folder / "images").glob("*.png"))}


def statement(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "provenance" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One image for each of five masks."""
    out = tmp_path_factory.mktemp("made") / "out"
    assert run(config(model, out)) == 0
    return out


def test_it_writes_prepared_data_with_the_masks_it_was_given(made: Path) -> None:
    source = PreparedSource(made, verify=True)
    real = open_source("phantom", masks=None, size=64, phantom=Phantom(count=COUNT))
    assert list(source.names) == list(real.names)
    assert list(source.groups) == list(real.groups)
    for index in range(COUNT):
        pair = source.read(index)
        assert pair.image.shape == (64, 64, 3)
        assert np.array_equal(pair.mask, real.read(index).mask)
    index = read_index(made)
    assert index["synthetic"] is True
    assert index["rules"]["steps"] == 2
    assert index["counts"]["pairs"] == COUNT
    assert index["filter"] is None
    assert "Keep it apart from real images" in index["notes"][0]


def test_every_other_command_reads_it(made: Path, tmp_path: Path) -> None:
    assert main(["data", "split", str(made), "--out", str(tmp_path / "split.json")]) == 0
    assert open_source(str(made), masks=None, size=64, phantom=Phantom()).read(0).image.shape == (64, 64, 3)


def test_every_image_says_where_it_came_from(made: Path, model: Path) -> None:
    name = PreparedSource(made).names[0]
    image, mask = (made / part / f"{name}.png" for part in ("images", "masks"))
    digest = model_hash(read_card(model))
    text = Image.open(image).text  # type: ignore[attr-defined]
    assert text["Description"] == "synthetic, not a patient"
    assert text["laworder:model_sha256"] == digest
    assert text["laworder:mask_sha256"] == hashlib.sha256(mask.read_bytes()).hexdigest()
    assert text["laworder:seed"] == "0"
    told = statement(made, name)
    labels = [assertion["label"] for assertion in told["assertions"]]
    assert labels == ["c2pa.actions", "c2pa.hash.data", "laworder.synthesis"]
    assert told["signed"] is False
    assert told["assertions"][1]["data"]["hash"] == hashlib.sha256(image.read_bytes()).hexdigest()
    synthesis = told["assertions"][2]["data"]
    assert synthesis["model"] == {"sha256": digest, "objective": "law", "backbone": "tiny"}
    assert str(synthesis["noise_seed"]) == text["laworder:noise_seed"]
    assert str(made) not in json.dumps(told), "a statement travels: it names no folder of whoever made it"


def test_one_image_can_be_made_again_alone(made: Path, model: Path, tmp_path: Path) -> None:
    whole = pictures(made)
    name = list(whole)[3]
    run(config(model, tmp_path / "one", only=name, batch=16, workers=1))
    alone = pictures(tmp_path / "one")
    assert list(alone) == [name]
    assert np.abs(alone[name].astype(int) - whole[name]).max() <= 1
    assert statement(tmp_path / "one", name)["assertions"][2] == statement(made, name)["assertions"][2]


def test_batch_and_workers_change_nothing(made: Path, model: Path, tmp_path: Path) -> None:
    run(config(model, tmp_path, batch=5, workers=1))
    other, expected = pictures(tmp_path), pictures(made)
    assert list(other) == list(expected)
    assert all(np.abs(other[name].astype(int) - expected[name]).max() <= 1 for name in expected)


def test_another_seed_gives_other_images(made: Path, model: Path, tmp_path: Path) -> None:
    run(config(model, tmp_path, seed=1, only=PreparedSource(made).names[0]))
    (name, image), expected = next(iter(pictures(tmp_path).items())), pictures(made)
    assert np.abs(image.astype(int) - expected[name]).mean() > 5


def test_a_set_grows_and_keeps_what_it_has(made: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(made, out)
    before = {file: file.stat().st_mtime_ns for file in (out / "images").iterdir()}
    run(config(model, out, count=2))
    assert len(PreparedSource(out, verify=True)) == 2 * COUNT
    assert {file: file.stat().st_mtime_ns for file in before} == before
    first = PreparedSource(out).names[0]
    assert f"{first}-n1" in PreparedSource(out).names
    with pytest.raises(UserError, match=r"holds a run with other settings: steps was 2 and is now 3"):
        run(config(model, out, count=2, steps=3))


def test_varied_masks_are_marked_as_such(model: Path, tmp_path: Path) -> None:
    run(config(model, tmp_path, augment=True, count=2))
    source = PreparedSource(tmp_path, verify=True)
    name = source.names[0]
    assert name.endswith("-v0")
    assert statement(tmp_path, name)["assertions"][2]["data"]["mask"]["varied"] is True
    assert read_index(tmp_path)["rules"]["jitter"]["shift"] == 0.1
    real = open_source("phantom", masks=None, size=64, phantom=Phantom(count=COUNT))
    assert not np.array_equal(source.read(0).mask, real.read(0).mask)


def test_a_finished_set_is_left_alone(
    made: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Backbone, "load", lambda *_: pytest.fail("nothing is missing: no model is needed"))
    run(config(model, made))
    assert f"{COUNT} synthetic images, 0 with an empty mask" in capsys.readouterr().out


def test_damaged_files_are_made_again(made: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(made, out)
    names = PreparedSource(out).names
    image = out / "images" / f"{names[0]}.png"
    image.write_bytes(image.read_bytes()[:-9])
    (out / "masks" / f"{names[1]}.png").unlink()
    (out / "provenance" / f"{names[2]}.json").write_text('{"record": ')
    run(config(model, out))
    for part in ("images", "masks", "provenance"):
        for file in (made / part).iterdir():
            assert (out / part / file.name).read_bytes() == file.read_bytes()


def test_where_memory_lacks_batches_become_smaller(
    made: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = Engine.draw

    def narrow(self: Engine, *given: Any) -> Any:
        if self.batch > 1:
            raise torch.OutOfMemoryError("no room")
        return draw(self, *given)

    monkeypatch.setattr(Engine, "draw", narrow)
    run(config(model, tmp_path / "out", batch=4))
    assert "batch: 3 images at once do not fit in memory; going on with 1" in capsys.readouterr().err
    expected = pictures(made)
    assert all(np.abs(im.astype(int) - expected[n]).max() <= 1 for n, im in pictures(tmp_path / "out").items())
    monkeypatch.setattr(Engine, "draw", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no room")))
    with pytest.raises(UserError, match="memory does not suffice for a single image: try precision bf16"):
        run(config(model, tmp_path / "none"))


def test_the_plan_says_what_would_be_done_and_does_nothing(model: Path, tmp_path: Path) -> None:
    told = plan(config(model, tmp_path / "out", shard="2/3", augment=True, filter__judge="judge"))
    assert told[0] == f"look at {COUNT} masks in phantom"
    assert "draw 2 images of 64×64 (part 2 of 3), each mask varied first" in told[1]
    assert "by ddim in 2 steps, guidance 1, η 0, seed 0" in told[2]
    assert "keep those in which judge finds the lesion" in told[3]
    assert not (tmp_path / "out").exists()


def test_defaults_are_those_of_the_paper_where_the_backbone_says_so(model: Path) -> None:
    card = {**read_card(model), "backbone": "sd15", "sampling": {}}
    how = recipe(build(Config, {"model": "m", "data": "phantom"}), card)
    assert (how.scheduler, how.steps, how.eta, how.guidance, how.drops) == ("ddim", 50, 0.0, 10.0, "prompt")
    tiny = recipe(build(Config, {"model": "m", "data": "phantom"}), read_card(model))
    assert tiny.guidance == 1.0


def damaged(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return folder


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "nowhere"}, "nowhere: no model folder: laworder.json is missing; give a run of `synth train`"),
        ({"data": "nowhere"}, "'nowhere' is no folder; give a folder of images and masks"),
        ({"only": "nobody"}, "only: no image is called 'nobody'"),
        ({"shard": "4/3"}, "shard: write K/N with K from 1 to N, such as 1/4, not '4/3'"),
        ({"prompt": "a polip"}, "prompt: 'a polip' is none that this model was trained with; did you mean 'a polyp'"),
        ({"scheduler": "ddmi"}, "scheduler: 'ddmi' is unknown"),
        ({"scheduler": "pndm"}, "scheduler: pndm cannot begin in pure noise"),
        ({"eta": "0.5", "scheduler": "euler"}, "eta is 0.5, but EulerDiscreteScheduler has no such setting"),
        ({"jitter.smallest": "0.9", "jitter.largest": "0.1", "augment": "true"}, "jitter: smallest (0.9) lies above"),
        ({"filter.judge": "./nowhere"}, "'./nowhere' is no folder and no shipped model"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(
    more: dict[str, str], message: str, model: Path, tmp_path: Path
) -> None:
    values = {"model": model, "data": "phantom", "phantom.count": COUNT, "steps": 2, "device": "cpu", **more}
    with pytest.raises(UserError) as caught:
        run(build(Config, {**values, "out": tmp_path / "out"}))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_be_loaded_leaves_no_folder(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="diffusers cannot load it"):
        run(config(damaged(model, tmp_path / "bad"), tmp_path / "out"))
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    (unfinished / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"a run without a finished model .*run its command again"):
        run(config(unfinished, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_prior_draws_no_masks(tmp_path: Path, model: Path) -> None:
    shutil.copytree(model, tmp_path / "prior")
    card = json.loads((tmp_path / "prior" / "laworder.json").read_text())
    (tmp_path / "prior" / "laworder.json").write_text(json.dumps({**card, "stage": "prior"}))
    with pytest.raises(UserError, match=r"trained without masks .*train its stage control first"):
        run(config(tmp_path / "prior", tmp_path / "out"))


def test_latents_that_are_no_numbers_leave_nothing_half_written(model: Path, tmp_path: Path) -> None:
    made = Backbone.load(model)
    made.unet.conv_out.bias.data.fill_(float("nan"))
    made.save(tmp_path / "nan")
    with pytest.raises(UserError, match="latents that are no numbers"):
        run(config(tmp_path / "nan", tmp_path / "out"))
    assert not [file for file in (tmp_path / "out").rglob("*") if file.suffix == ".png" or file.name == "dataset.json"]
    run(config(model, tmp_path / "out", steps=3))  # nothing was drawn yet: other settings may take the folder


def test_a_folder_of_something_else_is_left_alone(model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files \(notes\.txt, …\) and no sampled images; choose another"):
        run(config(model, tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UserError, match="cannot be used as a folder"):
        run(config(model, tmp_path / "notes.txt"))


def test_other_masks_do_not_go_into_the_same_folder(model: Path, made: Path) -> None:
    with pytest.raises(UserError, match=r"other settings: phantom\.seed was 0 and is now 1, data masks was"):
        run(config(model, made, phantom__seed=1))


def test_a_full_disk_is_said(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        del self, content
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"No space left on device; make room, then run the same command again"):
        run(config(model, tmp_path / "out"))


def test_threads_tell_their_errors(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drawing, "_write", lambda *_: (_ for _ in ()).throw(UserError("the writer's")))
    with pytest.raises(UserError, match="the writer's"):
        run(config(model, tmp_path / "out"))


def test_help_speaks_of_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "sample", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("--shard", "--filter.judge", "--jitter.shift", "--compile", "--eta"))
