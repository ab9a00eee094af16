"""Training Stable Diffusion with a ControlNet, on a folder in its format with small random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import random_sd15
from training import settings, trained_prior

from laworder.config import build
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import read_card
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.start import starting_backbone
from laworder.diffusion.task import DiffuseTask
from laworder.diffusion.train import train
from laworder.errors import UserError
from laworder.runs import read_metrics

PROMPT = "a polyp in a colonoscopy"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_sd15(tmp_path_factory.mktemp("weights") / "sd")


def sd15(weights: Path, **more: Any) -> TrainConfig:
    given = {"backbone": "sd15", "size": 64, "network__weights": str(weights), "prompt": PROMPT, "steps": 2}
    return settings(**{**given, "watch__every": 2, "watch__guidance": 3.0, "optimiser__lr": 1e-3, **more})


@pytest.mark.parametrize("objective", ["uniform", "distillation", "law", "law_plus"])
def test_objectives_of_every_kind_train_it(tmp_path: Path, weights: Path, objective: str) -> None:
    train(sd15(weights, out=tmp_path, objective=objective))
    assert all(np.isfinite(line["loss"]) for line in read_metrics(tmp_path / "metrics.jsonl"))
    assert read_card(tmp_path)["prompts"] == ["", PROMPT]


def test_what_it_writes_is_a_pipeline_of_diffusers(tmp_path: Path, weights: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    train(sd15(weights, out=tmp_path))
    pipeline = diffusers.StableDiffusionControlNetPipeline.from_pretrained(tmp_path / "model", safety_checker=None)
    pipeline.set_progress_bar_config(disable=True)
    mask = torch.zeros(1, 3, 64, 64)
    made = pipeline(PROMPT, image=mask, num_inference_steps=2, height=64, width=64, output_type="np").images
    assert made.shape == (1, 64, 64, 3)


@pytest.mark.parametrize("unlocked", [True, False])
def test_the_decoder_is_locked_or_not(tmp_path: Path, weights: Path, unlocked: bool) -> None:
    config = sd15(weights, out=tmp_path, network__unlock_decoder=unlocked)
    before = starting_backbone(config).unet.state_dict()
    train(config)
    after = Backbone.load(tmp_path).unet.state_dict()
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == ({"up_blocks", "conv_norm_out", "conv_out"} if unlocked else set())


def test_a_control_begins_as_the_encoder_or_as_a_released_one(tmp_path: Path, weights: Path) -> None:
    fresh = starting_backbone(sd15(weights))
    for name, value in fresh.unet.down_blocks.state_dict().items():
        assert torch.equal(fresh.controlnet.down_blocks.state_dict()[name], value)
    fresh.controlnet.conv_in.weight.data.fill_(0.5)
    fresh.controlnet.save_pretrained(tmp_path / "released")
    config = sd15(weights, out=tmp_path / "run", network__controlnet=str(tmp_path / "released"), optimiser__lr=1e-6)
    train(config)
    learnt = Backbone.load(tmp_path / "run").controlnet.conv_in.weight
    assert torch.allclose(learnt, torch.full_like(learnt, 0.5), atol=1e-3)


def test_lora_learns_little_and_is_merged(tmp_path: Path, weights: Path) -> None:
    full = sd15(weights, out=tmp_path / "full", network__unlock_decoder=False)
    config = sd15(weights, out=tmp_path / "lora", network__lora=2, network__unlock_decoder=False)
    start = starting_backbone(config).controlnet.state_dict()
    train(full)
    train(config)
    assert read_card(tmp_path / "lora")["learned"] < read_card(tmp_path / "full")["learned"]
    model = Backbone.load(tmp_path / "lora")
    after = model.controlnet.state_dict()
    assert after.keys() == start.keys()
    moved = {name for name in start if not torch.equal(start[name], after[name])}
    assert any("to_q" in name for name in moved)
    assert "conv_in.weight" not in moved


def test_gradient_checkpointing_changes_nothing_but_memory(tmp_path: Path, weights: Path) -> None:
    for name, on in (("plain", False), ("again", True)):
        train(sd15(weights, out=tmp_path / name, network__gradient_checkpointing=on, objective="distillation"))
    a, b = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("plain", "again"))
    for ours, theirs in zip(a, b, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


def test_encoder_and_autoencoder_are_called_before_training_only(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latents and embeddings are cached: no update touches the autoencoder or the text encoder."""
    inner = DiffuseTask.micro_step

    def guarded(self: DiffuseTask, batch: Any, step: int, micro: int) -> Any:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("called during training")

        autoencoder, words = self.backbone.autoencoder, self.backbone.words
        with monkeypatch.context() as patch:
            patch.setattr(autoencoder, "encode", refuse)
            patch.setattr(words, "embed", refuse)
            assert all(p.device.type == "cpu" for p in (*autoencoder.parameters(), *words.parameters()))
            return inner(self, batch, step, micro)

    monkeypatch.setattr(DiffuseTask, "micro_step", guarded)
    train(sd15(weights, out=tmp_path, batch=2))


def test_the_prompt_is_dropped_as_often_as_asked(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    inner = DiffuseTask.draw

    def watched(self: DiffuseTask, positions: Any, step: int, micro: int) -> Any:
        drawn = inner(self, positions, step, micro)
        seen.extend((text == self.table[0]).all() for text in drawn.text)
        return drawn

    monkeypatch.setattr(DiffuseTask, "draw", watched)
    for share in (0.0, 1.0):
        seen.clear()
        train(sd15(weights, out=tmp_path / str(share), prompt_drop=share, stage="prior"))
        assert sum(map(bool, seen)) == share * len(seen)


def test_stage_prior_fine_tunes_and_stage_control_goes_on(tmp_path: Path, weights: Path) -> None:
    prior = trained_prior(tmp_path / "prior", backbone="sd15", size=64, network__weights=str(weights), prompt=PROMPT)
    train(sd15(weights, out=tmp_path / "run", prior=prior))
    model = Backbone.load(tmp_path / "run")
    tuned = Backbone.load(prior).unet.down_blocks.state_dict()
    assert all(torch.equal(value, tuned[name]) for name, value in model.unet.down_blocks.state_dict().items())


def test_eight_bit_adam_says_what_it_needs(tmp_path: Path, weights: Path) -> None:
    with pytest.raises(UserError, match="adamw8bit works on CUDA only; use adamw"):
        train(sd15(weights, out=tmp_path / "run", optimiser__name="adamw8bit"))
    assert not (tmp_path / "run").exists()


def test_the_papers_presets_name_its_settings() -> None:
    from laworder.presets import read_preset

    steps = {"paper-polyps": 1000, "paper-brisc": 2000, "paper-kits19": 2000}
    for name, count in steps.items():
        config = build(TrainConfig, {"data": "x", **read_preset("synth train", name)})
        assert (config.backbone, config.side, config.batch, config.steps) == ("sd15", 384, 20, count)
        assert (config.optimiser.lr, config.prompt_drop, config.guidance) == (1e-5, 0.05, 10.0)
        assert config.network.unlock_decoder
        assert config.prompt
