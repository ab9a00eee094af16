"""The untrained autoencoder, from settings."""

from __future__ import annotations

from typing import Any

import torch

from laworder.diffusion.library import library
from laworder.diffusion.vae.settings import VaeConfig
from laworder.errors import UserError
from laworder.runs import generator

GROUP = 8


def fresh_autoencoder(config: VaeConfig) -> Any:
    """Its weights are a function of the seed alone."""
    settings = config.network
    check(config)
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="weights").initial_seed())
        if settings.kind == "tiny":
            return _tiny(settings.widths, settings.blocks, settings.latent_channels)
        levels = len(settings.widths)
        return library("diffusers").AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * levels,
            up_block_types=("UpDecoderBlock2D",) * levels,
            block_out_channels=tuple(settings.widths),
            layers_per_block=settings.blocks,
            norm_num_groups=GROUP,
            latent_channels=settings.latent_channels,
            sample_size=config.size,
            mid_block_add_attention=False,
        )


def _tiny(widths: tuple[int, ...], blocks: int, latent_channels: int) -> Any:
    return library("diffusers").AutoencoderTiny(
        encoder_block_out_channels=tuple(widths),
        decoder_block_out_channels=tuple(reversed(widths)),
        num_encoder_blocks=(1, *[blocks] * (len(widths) - 1)),
        num_decoder_blocks=(*[blocks] * (len(widths) - 1), 1),
        latent_channels=latent_channels,
    )


def check(config: VaeConfig) -> None:
    """Refuse what cannot be built."""
    widths = config.network.widths
    if config.network.kind == "kl" and any(width % GROUP for width in widths):
        raise UserError(f"network.widths: each must be a multiple of {GROUP}, not {', '.join(map(str, widths))}")
    if config.network.kind == "tiny" and len(set(widths)) > 1:
        raise UserError(f"network.widths: tiny has one width on all levels, not {', '.join(map(str, widths))}")
    factor = 2 ** (len(widths) - 1)
    if config.size % factor:
        raise UserError(f"size must be a multiple of {factor} for {len(widths)} levels, not {config.size}")
    if config.size // factor < 2**config.loss.scales // 2:
        raise UserError(f"loss.scales: {config.loss.scales} halvings leave too little of {config.size} pixels")
