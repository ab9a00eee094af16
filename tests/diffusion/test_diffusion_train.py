"""`laworder synth train`: both stages, every objective, what a run holds, and the same bits from the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from training import SMALL, kept, settings, trained_prior

from laworder.cli import main
from laworder.config import build
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import read_card
from laworder.diffusion.learners import build_schedule
from laworder.diffusion.schedules import sampler
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.train import plan, train
from laworder.errors import UserError
from laworder.law import list_objectives
from laworder.presets import preset_names, read_preset
from laworder.runs import Checkpoints, read_manifest, read_metrics


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_prior(tmp_path_factory.mktemp("prior"))


def test_a_run_of_each_stage_holds_what_was_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items() if key != "data"]
    first, second = tmp_path / "prior", tmp_path / "law"
    assert main(["synth", "train", "phantom", "--stage=prior", f"--out={first}", *words]) == 0
    assert main(["synth", "train", "phantom", f"--prior={first}", f"--out={second}", *words]) == 0
    said = capsys.readouterr().out
    assert "realism" in said
    assert "The control is " in said
    for folder in (first, second):
        assert read_manifest(folder).outcome == "done"
        assert [line["step"] for line in read_metrics(folder / "metrics.jsonl")] == [1, 2, 3, 4]
        assert len(list((folder / "looks").glob("sheet-*.png"))) == 2
        assert "Which weights were kept" in (folder / "report.html").read_text()
    assert Backbone.load(first).controlnet is None
    assert Backbone.load(second).controlnet is not None
    assert len(list((second / "looks").glob("delta-*.png"))) == 2
    card = read_card(second)
    assert (card["stage"], card["objective"], card["backbone"]) == ("control", "law", "tiny")
    assert card["step"] == json.loads((second / "training.json").read_text())["step"]
    assert read_manifest(second).data["prior"] != read_manifest(second).data["pairs"]
    assert {"val_realism", "val_probe_blank_inside", "saturated", "w_mean", "vanished"} <= read_metrics(
        second / "metrics.jsonl"
    )[-1].keys()


@pytest.mark.parametrize("objective", list_objectives())
def test_every_objective_trains_from_the_same_start(tmp_path: Path, prior: Path, objective: str) -> None:
    train(settings(out=tmp_path, prior=prior, objective=objective, steps=2, watch__every=2))
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert all(np.isfinite(line["loss"]) for line in lines)
    card = read_card(tmp_path)
    assert card["objective"] == objective
    assert sorted(card["weights"]) == [f"{part}/diffusion_pytorch_model.safetensors" for part in ("controlnet", "unet")]
    modules = Checkpoints(tmp_path / "checkpoints").best().state["modules"]
    assert ("teacher" in modules) == (objective == "distillation")
    assert bool(modules["objective"]) == (objective.startswith("law"))


def test_objectives_differ_in_the_loss_alone(tmp_path: Path, prior: Path) -> None:
    """Same start, same data, same draws: what the networks see in the first step is the same for all of them."""
    firsts = {}
    for objective in ("uniform", "law", "ratio", "distillation"):
        train(settings(out=tmp_path / objective, prior=prior, objective=objective, steps=1))
        firsts[objective] = read_metrics(tmp_path / objective / "metrics.jsonl")[0]
    for name in ("error_inside", "error_outside"):
        assert len({line[name] for line in firsts.values()}) == 1
    assert len({line["loss"] for line in firsts.values()}) == 4


def test_the_frozen_part_stays_as_the_prior_left_it(tmp_path: Path, prior: Path) -> None:
    before = Backbone.load(prior).unet.state_dict()
    for unlocked in (True, False):
        out = tmp_path / str(unlocked)
        train(settings(out=out, prior=prior, steps=2, optimiser__lr=1e-2, network__unlock_decoder=unlocked))
        after = Backbone.load(out).unet.state_dict()
        moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
        assert moved == ({"up_blocks", "conv_norm_out", "conv_out"} if unlocked else set())


def test_the_teacher_sees_the_image_and_is_not_sampled(tmp_path: Path, prior: Path) -> None:
    train(settings(out=tmp_path, prior=prior, objective="distillation", optimiser__lr=1e-2))
    teacher = Checkpoints(tmp_path / "checkpoints").best().state["modules"]["teacher"]
    assert teacher["controlnet_cond_embedding.of_image.conv_in.weight"].shape[1] == 3
    assert teacher["controlnet_cond_embedding.of_mask.conv_in.weight"].shape[1] == 1
    student = Backbone.load(tmp_path).controlnet.state_dict()
    assert not any("of_image" in name for name in student)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(settings(out=tmp_path / name, seed=seed))
    a, b, c = (kept(tmp_path / name) for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


def test_a_batch_in_parts_is_the_same_batch(tmp_path: Path, prior: Path) -> None:
    for parts in (1, 2, 4):
        train(settings(out=tmp_path / str(parts), prior=prior, accumulate=parts, batch=4))
    whole = read_metrics(tmp_path / "1" / "metrics.jsonl")
    for parts in (2, 4):
        lines = read_metrics(tmp_path / str(parts) / "metrics.jsonl")
        for ours, theirs in zip(lines, whole, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"noise__prediction": "epsilon", "noise__weighting": "min_snr"},
        {"noise__prediction": "sample", "noise__weighting": "p2"},
        {"precision": "bf16", "flips": "hv", "channels": 1, "phantom__modality": "ct"},
        {"optimiser__ema": 0.0, "optimiser__schedule": "cosine", "optimiser__warmup": 1, "watch__drops": "mask",
         "watch__guidance": 2.0},
        {"network__gradient_checkpointing": True, "cache_gb": 0.0},
        {"class_prompts": ("a polyp",), "prompt": "nothing"},
    ],
)  # fmt: skip
def test_every_other_way_to_train(tmp_path: Path, more: dict[str, Any]) -> None:
    train(settings(out=tmp_path, steps=2, watch__every=2, **more))
    assert all(np.isfinite(line["loss"]) for line in read_metrics(tmp_path / "metrics.jsonl"))
    assert (tmp_path / "model" / "laworder.json").is_file()


def test_a_judge_decides_which_weights_are_kept(tmp_path: Path) -> None:
    from laworder.segmenters import create

    create("order_01", in_channels=3, classes=1).save_pretrained(tmp_path / "judge")
    summary = train(settings(out=tmp_path / "run", watch__judge=str(tmp_path / "judge")))
    assert (summary["best"], summary["mode"]) == ("val_recovered_dice", "max")
    assert 0 <= summary["ceiling"] <= 1
    assert "ceiling" in (tmp_path / "run" / "report.html").read_text()


def test_a_finished_run_is_left_alone(tmp_path: Path, prior: Path) -> None:
    config = settings(out=tmp_path, prior=prior)
    first = train(config)
    stamp = (tmp_path / "report.html").stat().st_mtime_ns
    assert train(config) == first
    assert (tmp_path / "report.html").stat().st_mtime_ns == stamp


def test_the_plan_says_what_would_be_done(tmp_path: Path) -> None:
    told = "\n".join(plan(settings(out=tmp_path / "run")))
    assert "all of it learns along with the ControlNet" in told
    assert "realism (no judge)" in told
    assert not (tmp_path / "run").exists()
    assert "an image prior, without masks" in "\n".join(plan(settings(stage="prior", split=Path("s.json"))))


def test_a_folder_of_images_is_trained_on(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for n in range(8):
        Image.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / "in" / f"{n}.png")
        mask = np.zeros((40, 40), dtype=np.uint8)
        mask[10 : 20 + n, 12:24] = 255
        Image.fromarray(mask).save(tmp_path / "in" / f"{n}_mask.png")
    train(settings(data=str(tmp_path / "in"), out=tmp_path / "run", steps=1, held_out=0.3))
    assert read_card(tmp_path / "run")["data"]["source"] == str(tmp_path / "in")


def test_tiny_predicts_the_image_and_samplers_that_cannot_draw_so_are_refused(prior: Path) -> None:
    schedule = Backbone.load(prior).scheduler
    assert schedule.config.prediction_type == "sample"
    assert sampler("ddim", schedule).config.prediction_type == "sample"
    with pytest.raises(UserError, match="scheduler: euler cannot draw with a model that predicts the image itself"):
        sampler("euler", schedule)


def test_a_run_is_reproduced_to_the_bit(tmp_path: Path, prior: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(settings(out=tmp_path / "run", prior=prior, steps=2))
    assert main(["reproduce", str(tmp_path / "run")]) == 0
    assert "every logged number and every weight" in capsys.readouterr().out


@pytest.mark.parametrize("name", preset_names("synth train"))
def test_every_preset_is_a_config(name: str) -> None:
    config = build(TrainConfig, {"data": "x", **read_preset("synth train", name)})
    assert config.side == {"tiny": 64, "small": 256, "sd15": 384}[config.backbone]
    assert build_schedule(config.optimiser, config.steps)(config.steps) >= 0
