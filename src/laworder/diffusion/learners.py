"""Which weights learn, and the rule by which they move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.library import library
from laworder.diffusion.settings import Optimiser, TrainConfig
from laworder.errors import UserError
from laworder.law import Objective
from laworder.runs import generator
from laworder.runs.schedules import Schedule, cosine

DECODER = ("up_blocks.", "conv_norm_out.", "conv_out.")
"""The UNet's decoder, which ControlNet's sd_locked=False lets learn."""
_LORA = ("to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "conv1", "conv2", "ff.net.0.proj", "ff.net.2")
_ZERO = ("controlnet_cond_embedding.", "controlnet_down_blocks.", "controlnet_mid_block.")
"""What LoRA cannot adapt, because it starts at zero or from nothing: it learns in full."""


class Shelf(nn.Module):
    """Parameters that belong to other modules, under one name each: so that a checkpoint holds what learns, not all."""

    def __init__(self, named: Mapping[str, Parameter]) -> None:
        super().__init__()
        for name, parameter in named.items():
            self.register_parameter(name.replace(".", "/"), parameter)


def begins_from_nothing(config: TrainConfig) -> bool:
    """Whether stage control has no trained UNet to keep: then all of it learns."""
    return config.stage == "control" and config.prior is None and config.backbone != "sd15"


def choose_learners(backbone: Backbone, config: TrainConfig) -> dict[str, Parameter]:
    """Freeze everything, then let the chosen weights learn. Names begin with unet. or controlnet."""
    backbone.requires_grad_(False)
    if config.stage == "control" and config.network.lora:
        _add_lora(backbone.controlnet, config)
    chosen = {f"unet.{name}": p for name, p in backbone.unet.named_parameters() if _unet_learns(name, config)}
    if backbone.controlnet is not None:
        for name, parameter in backbone.controlnet.named_parameters():
            if not config.network.lora or "lora_" in name or name.startswith(_ZERO):
                chosen[f"controlnet.{name}"] = parameter
    for parameter in chosen.values():
        parameter.requires_grad_(True)
    return chosen


def _unet_learns(name: str, config: TrainConfig) -> bool:
    if config.stage == "prior" or begins_from_nothing(config):
        return True
    return config.network.unlock_decoder and name.startswith(DECODER)


def _add_lora(control: Any, config: TrainConfig) -> None:
    """W + BA of rank r in the ControlNet's attention and convolutions (Hu et al. 2022), by peft."""
    rank = config.network.lora
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="lora").initial_seed())
        control.add_adapter(library("peft").LoraConfig(r=rank, lora_alpha=rank, target_modules=list(_LORA)))


def merge_lora(backbone: Backbone) -> None:
    """W ← W + BA, so that what is saved is an ordinary ControlNet."""
    if backbone.controlnet is not None and getattr(backbone.controlnet, "_hf_peft_config_loaded", False):
        backbone.controlnet.fuse_lora()
        backbone.controlnet.unload_lora()


def build_optimiser(
    weights: Iterable[Parameter], objective: Objective, settings: Optimiser, *, law_lr: float | None, cuda: bool
) -> Optimizer:
    """AdamW (or its 8-bit form) over the denoiser, and the objective's own weights at their own rate."""
    groups = [{"params": list(weights)}, *objective.parameter_groups(lr=law_lr)]
    if settings.name == "adamw8bit":
        if not cuda:
            raise UserError("optimiser.name: adamw8bit works on CUDA only; use adamw")
        try:
            bitsandbytes: Any = __import__("bitsandbytes")
        except ImportError as error:
            raise UserError(
                "optimiser.name: adamw8bit needs bitsandbytes, which is not installed: pip install bitsandbytes, "
                "or use adamw"
            ) from error
        return bitsandbytes.optim.AdamW8bit(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay, fused=cuda)


def build_schedule(settings: Optimiser, steps: int) -> Schedule:
    """Factor on the learning rates at update k = 1 … steps."""
    if settings.schedule == "cosine":
        return cosine(steps, warmup=settings.warmup)
    return lambda step: min(1.0, step / settings.warmup) if settings.warmup else 1.0


def count(parameters: Iterable[Parameter]) -> int:
    """How many numbers they hold."""
    return sum(math.prod(p.shape) for p in parameters)
