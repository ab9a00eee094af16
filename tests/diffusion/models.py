"""Model folders for tests: untrained weights, real layout."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from laworder.config import build
from laworder.diffusion.autoencoders import Diffusers
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.backbones import build_backbone
from laworder.diffusion.library import library
from laworder.diffusion.settings import TrainConfig

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ("a polyp", "a tumour")
CARD = {
    "stage": "control",
    "objective": "law",
    "objective_settings": {},
    "prompt": "a polyp",
    "class_prompts": [],
    "mask_resize": "nearest",
    "steps": 1,
    "step": 1,
    "seed": 0,
    "data": {"source": "phantom", "hash": "0" * 64, "pairs": 2},
    "metrics": {},
    "sampling": {"steps": 3, "guidance": 1.0, "eta": 0.0, "scheduler": "ddim", "drops": "prompt"},
}
"""What `synth train` adds to `laworder.json`."""


def settings(**more: Any) -> TrainConfig:
    """A config with the fewest words; `network__widths` is `network.widths`."""
    return build(TrainConfig, {"data": "phantom", **{k.replace("__", "."): v for k, v in more.items()}})


def random_sd15(folder: Path) -> Path:
    """A folder in the format of Stable Diffusion 1.5, of small widths."""
    spec = importlib.util.spec_from_file_location("random_sd15", ROOT / "tools" / "random_sd15.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make(folder)


def small_autoencoder(folder: Path) -> Path:
    """An AutoencoderTiny of 8× with few weights, as diffusers saves it."""
    torch.manual_seed(0)
    network = library("diffusers").AutoencoderTiny(
        encoder_block_out_channels=(8, 8, 8, 8),
        decoder_block_out_channels=(8, 8, 8, 8),
        num_encoder_blocks=(1, 1, 1, 1),
        num_decoder_blocks=(1, 1, 1, 1),
        latent_channels=4,
    )
    Diffusers(network).save(folder)
    return folder / "vae"


def backbone(kind: str, folder: Path, **more: Any) -> Backbone:
    """An untrained backbone of any kind; what it is loaded from goes into `folder`."""
    if kind == "tiny":  # what it predicts by default, not every sampler can draw with
        more = {"noise__prediction": "v_prediction", **more}
    if kind == "small":
        more = {"size": 64, "network__autoencoder": small_autoencoder(folder / "ae"), **more}
        more = {"network__widths": (32, 32), "network__blocks": 1, **more}
    if kind == "sd15":
        more = {"size": 64, "network__weights": str(random_sd15(folder / "sd")), **more}
    return build_backbone(settings(backbone=kind, **more), PROMPTS)


def shake(model: Backbone) -> Backbone:
    """Give the ControlNet's zero layers weights, as training does: its masks then matter."""
    torch.manual_seed(1)
    for name, weight in model.controlnet.named_parameters():
        if "controlnet_down_blocks" in name or "controlnet_mid_block" in name or "conv_out" in name:
            weight.data.normal_(std=0.3)
    return model


def model_folder(folder: Path, kind: str = "tiny", **more: Any) -> Path:
    """A saved model that `synth sample` takes; its masks matter, its pictures are noise."""
    made = shake(backbone(kind, folder.parent / f"{folder.name}-from", **more))
    made.card = {**CARD, **made.card}
    made.save(folder)
    return folder
