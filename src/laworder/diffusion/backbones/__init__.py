"""Backbones by name; one file puts each together."""

from __future__ import annotations

import torch

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.backbones.sd15 import sd15
from laworder.diffusion.backbones.small import small
from laworder.diffusion.backbones.tiny import tiny
from laworder.diffusion.schedules import noise_schedule
from laworder.diffusion.settings import TrainConfig
from laworder.runs import generator


def build_backbone(config: TrainConfig, prompts: tuple[str, ...]) -> Backbone:
    """The backbone that a training begins with; fresh weights are a function of the seed alone."""
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="weights").initial_seed())
        if config.backbone == "sd15":
            return sd15(size=config.side, network=config.network)
        if config.backbone == "small":
            schedule = noise_schedule(config.prediction, config.noise.betas)
            return small(size=config.side, network=config.network, schedule=schedule, prompts=prompts)
        return tiny(size=config.side, channels=config.channels, prompts=prompts, prediction=config.prediction)
