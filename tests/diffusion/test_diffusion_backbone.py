"""Every backbone: built from settings, saved, loaded to the same bits, and clear where something lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from models import PROMPTS, backbone, model_folder, random_sd15, settings, shake, small_autoencoder

from laworder.diffusion.autoencoders import open_autoencoder
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.backbones import build_backbone
from laworder.diffusion.ddim import sample_images
from laworder.diffusion.folders import model_hash, read_card
from laworder.errors import UserError

KINDS = ("tiny", "small", "sd15")


def batch(model: Backbone) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(3)
    latents = torch.randn(2, model.latent_channels, model.side, model.side, generator=drawn)
    mask = torch.zeros(2, 1, model.size, model.size)
    mask[:, :, 8:24, 8:24] = 1
    return latents, torch.tensor([10, 900]), model.embed(PROMPTS), mask


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_backbone_computes_the_same_bits(tmp_path: Path, kind: str) -> None:
    model = shake(backbone(kind, tmp_path)).eval()
    given = batch(model)
    with torch.no_grad():
        before = model.denoise(*given)
    model.card = {"objective": "law"}
    model.save(tmp_path / "model")
    loaded = Backbone.load(tmp_path / "model")
    with torch.no_grad():
        after = loaded.denoise(given[0], given[1], loaded.embed(PROMPTS), given[3])
    assert torch.equal(before, after)
    assert (loaded.name, loaded.size, loaded.prediction) == (kind, model.size, model.prediction)
    images = torch.rand(2, 3, model.size, model.size) * 2 - 1
    assert torch.equal(model.encode(images), loaded.encode(images))
    assert torch.equal(model.decode(given[0]), loaded.decode(given[0]))
    assert loaded.card["objective"] == "law"
    assert not any(p.requires_grad for p in loaded.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_mask_matters_once_the_control_has_learnt(tmp_path: Path, kind: str) -> None:
    model = backbone(kind, tmp_path).eval()
    latents, t, text, mask = batch(model)
    with torch.no_grad():
        assert torch.equal(model.denoise(latents, t, text, mask), model.denoise(latents, t, text, None))
        shake(model)
        assert not torch.equal(model.denoise(latents, t, text, mask), model.denoise(latents, t, text, mask * 0))


@pytest.mark.parametrize("kind", KINDS)
def test_it_samples_images_of_its_size(tmp_path: Path, kind: str) -> None:
    model = backbone(kind, tmp_path).eval()
    _, _, text, mask = batch(model)
    made = [torch.Generator().manual_seed(n) for n in range(2)]
    images = sample_images(model, mask, text, generators=made, steps=2, guidance=2.0)
    assert images.shape == (2, 3, model.size, model.size)
    assert images.abs().max() <= 1


def test_fresh_weights_are_a_function_of_the_seed(tmp_path: Path) -> None:
    a, b, c = (backbone("tiny", tmp_path, seed=seed) for seed in (0, 0, 1))
    weights = [torch.cat([p.flatten() for p in m.unet.parameters()]) for m in (a, b, c)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_control_starts_as_the_unets_encoder(tmp_path: Path) -> None:
    model = backbone("sd15", tmp_path)
    ours, theirs = model.controlnet.down_blocks.state_dict(), model.unet.down_blocks.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_small_backbone_of_its_defaults_has_at_most_thirty_million_weights(tmp_path: Path) -> None:
    path = small_autoencoder(tmp_path)
    model = build_backbone(settings(backbone="small", network__autoencoder=path), ())
    assert sum(p.numel() for part in (model.unet, model.controlnet) for p in part.parameters()) <= 30_000_000


def test_a_stage_without_masks_has_no_control(tmp_path: Path) -> None:
    model = backbone("tiny", tmp_path)
    model.controlnet = None
    model.save(tmp_path / "prior")
    loaded = Backbone.load(tmp_path / "prior")
    latents, t, text, mask = batch(loaded)
    assert loaded.denoise(latents, t, text, None).shape == latents.shape
    with pytest.raises(UserError, match="trained without masks"):
        loaded.denoise(latents, t, text, mask)


def test_a_saved_sd15_is_a_pipeline_of_diffusers(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    folder = model_folder(tmp_path / "model", "sd15")
    pipeline = diffusers.StableDiffusionControlNetPipeline.from_pretrained(folder, safety_checker=None)
    pipeline.set_progress_bar_config(disable=True)
    mask = torch.zeros(1, 3, 64, 64)
    made = pipeline("a polyp", image=mask, num_inference_steps=2, height=64, width=64, output_type="np").images
    assert made.shape == (1, 64, 64, 3)


def test_the_card_names_every_weight_file(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    card = read_card(folder)
    assert set(card["weights"]) == {
        "unet/diffusion_pytorch_model.safetensors",
        "controlnet/diffusion_pytorch_model.safetensors",
    }
    other = model_folder(tmp_path / "other", seed=1)
    assert model_hash(card) != model_hash(read_card(other))
    assert model_hash(card) == model_hash(read_card(model_folder(tmp_path / "again")))


def test_a_prompt_that_training_did_not_see_is_refused(tmp_path: Path) -> None:
    model = backbone("tiny", tmp_path)
    with pytest.raises(
        UserError, match="'a polip' is none that this backbone was trained with; did you mean 'a polyp'"
    ):
        model.embed(["a polip"])


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("sd15", {}, "network.weights: sd15 starts from pretrained weights: give a hub id or a folder"),
        ("sd15", {"network__weights": "./none"}, "network.weights: ./none is no folder, and no hub id"),
        ("small", {}, "network.autoencoder: small works on the latents of a frozen autoencoder"),
        ("small", {"network__autoencoder": "/nowhere"}, "network.autoencoder: /nowhere is no folder"),
        ("tiny", {"size": 65}, "size must be a multiple of"),
    ],
)
def test_what_lacks_is_said_in_one_line(kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_backbone(settings(backbone=kind, **more), ())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_folder_of_weights_that_lacks_a_part_names_it(tmp_path: Path) -> None:
    folder = random_sd15(tmp_path / "sd")
    shutil.rmtree(folder / "vae")
    with pytest.raises(UserError, match="lacks vae/; a folder in diffusers format has all of it"):
        build_backbone(settings(backbone="sd15", size=64, network__weights=str(folder)), ())
    random_sd15(folder)
    next((folder / "unet").glob("*.safetensors")).unlink()
    with pytest.raises(UserError, match=r"cannot load unet of .*complete the folder"):
        build_backbone(settings(backbone="sd15", size=64, network__weights=str(folder)), ())


def test_a_released_control_for_another_unet_is_refused(tmp_path: Path) -> None:
    model = backbone("sd15", tmp_path)
    model.controlnet.save_pretrained(tmp_path / "control")
    good = {"backbone": "sd15", "size": 64, "network__weights": str(tmp_path / "sd")}
    again = build_backbone(settings(**good, network__controlnet=str(tmp_path / "control")), ())
    assert torch.equal(next(again.controlnet.parameters()), next(model.controlnet.parameters()))
    config = json.loads((tmp_path / "control" / "config.json").read_text())
    other = backbone("tiny", tmp_path)
    other.controlnet.save_pretrained(tmp_path / "control")
    with pytest.raises(UserError, match=r"has in_channels 48, the UNet 4: not made for it"):
        build_backbone(settings(**good, network__controlnet=str(tmp_path / "control")), ())
    assert config["in_channels"] == 4


def test_a_damaged_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model folder: laworder\.json is missing"):
        Backbone.load(tmp_path)
    folder = model_folder(tmp_path / "model")
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="diffusers cannot load it"):
        Backbone.load(folder)
    (folder / "laworder.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match="not a model of format 1"):
        Backbone.load(folder)


@pytest.mark.real_data
def test_the_published_autoencoder_round_trips(tmp_path: Path, shared_data: Path) -> None:
    found = shared_data.parent / "weights" / "taef2"
    autoencoder = open_autoencoder(found)
    autoencoder.save(tmp_path)
    again = open_autoencoder(tmp_path / "vae")
    images = torch.rand(1, 3, 64, 64) * 2 - 1
    assert torch.equal(autoencoder.encode(images), again.encode(images))
    assert autoencoder.encode(images).shape == (1, 32, 8, 8)
