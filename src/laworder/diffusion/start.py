"""What a training begins with: a backbone built from settings, or one that another run has trained."""

from __future__ import annotations

from pathlib import Path

import torch

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.backbones import build_backbone
from laworder.diffusion.control import fresh_control
from laworder.diffusion.folders import load_backbone, model_hash, read_card
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.text import FixedWords
from laworder.errors import UserError
from laworder.runs import generator


def prompts_of(config: TrainConfig) -> tuple[str, ...]:
    """Every prompt that training uses, the empty one first."""
    return tuple(dict.fromkeys(["", config.prompt, *config.class_prompts]))


def starting_backbone(config: TrainConfig) -> Backbone:
    """On the CPU, in eval mode. In stage control it has a ControlNet, in stage prior none."""
    prompts = prompts_of(config)
    if config.prior is None:
        backbone = build_backbone(config, prompts[1:])
    else:
        check_prior(config, config.prior)
        backbone = load_backbone(config.prior, torch.device("cpu"))
        if isinstance(backbone.words, FixedWords):
            known = backbone.words.prompts[1:]
            backbone.words = FixedWords([*known, *prompts[1:]], width=backbone.words.table.shape[-1])
        backbone.card = {}
    if config.stage == "prior":
        backbone.controlnet = None
    elif backbone.controlnet is None:
        with torch.random.fork_rng():
            torch.manual_seed(generator(config.seed, stream="control").initial_seed())
            backbone.controlnet = fresh_control(backbone.name, backbone.unet, backbone.factor)
    if not isinstance(backbone.words, FixedWords):
        backbone.words.prompts = prompts
    return backbone.eval()


def check_prior(config: TrainConfig, prior: Path) -> None:
    """Refuse weights that were not made for these settings, before anything is loaded or written."""
    card = read_card(prior)
    if card["backbone"] != config.backbone:
        raise UserError(
            f"prior: {prior} is a model of backbone {card['backbone']}, not {config.backbone}; "
            f"train with --backbone {card['backbone']}, or start from another run"
        )
    if card["size"] != config.side:
        raise UserError(f"prior: {prior} was trained at size {card['size']}, not {config.side}; set --size to it")
    if card["image_channels"] != config.image_channels:
        raise UserError(
            f"prior: {prior} draws images of {card['image_channels']} channels, not {config.image_channels}; "
            "set --channels to that"
        )
    noise = config.prediction
    if config.backbone != "sd15" and card["prediction"] != noise:
        raise UserError(f"prior: {prior} predicts {card['prediction']}, not {noise}; set --noise.prediction to it")


def prior_hash(config: TrainConfig) -> dict[str, str]:
    """What the manifest says of where the weights came from, so that a run is not resumed from others."""
    return {} if config.prior is None else {"prior": model_hash(read_card(config.prior))}
