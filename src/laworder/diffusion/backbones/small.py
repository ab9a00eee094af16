"""`small`: a frozen small autoencoder and a UNet with its ControlNet of at most 30 M weights; trains from nothing.

At 256² with TAEF2 the UNet works on 32×32 cells of 32 channels. Attention sits from the second level on (16×16 and
below), where it costs little; the first level has residual blocks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laworder.diffusion.autoencoders import Autoencoder, open_autoencoder
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.control import fresh_control
from laworder.diffusion.folders import MODEL
from laworder.diffusion.library import library
from laworder.diffusion.settings import Network
from laworder.diffusion.text import FixedWords
from laworder.errors import UserError

WIDTH, HEADS = 64, 4


def small(*, size: int, network: Network, schedule: Any, prompts: Sequence[str] = ()) -> Backbone:
    """The untrained backbone around its frozen autoencoder; weights come from torch's global generator."""
    autoencoder = _autoencoder(network.autoencoder)
    _check(size, autoencoder, network.widths)
    diffusers = library("diffusers")
    levels = len(network.widths)
    unet = diffusers.UNet2DConditionModel(
        sample_size=size // autoencoder.factor,
        in_channels=autoencoder.latent_channels,
        out_channels=autoencoder.latent_channels,
        block_out_channels=tuple(network.widths),
        layers_per_block=network.blocks,
        down_block_types=("DownBlock2D", *["CrossAttnDownBlock2D"] * (levels - 1)),
        up_block_types=(*["CrossAttnUpBlock2D"] * (levels - 1), "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=HEADS,
        dropout=network.dropout,
    )
    return Backbone(
        name="small",
        size=size,
        unet=unet,
        controlnet=fresh_control("small", unet, autoencoder.factor),
        autoencoder=autoencoder.requires_grad_(False),
        words=FixedWords(prompts, width=WIDTH),
        scheduler=schedule,
    )


def _autoencoder(folder: Path | None) -> Autoencoder:
    if folder is None:
        raise UserError(
            "network.autoencoder: small works on the latents of a frozen autoencoder: give the folder of TAEF2 "
            "(taef2_encoder.pth, taef2_decoder.pth), of one of diffusers, or of a run of `laworder synth train-vae`"
        )
    if not folder.is_dir():
        raise UserError(f"network.autoencoder: {folder} is no folder")
    inside = folder / MODEL
    return open_autoencoder(inside if (inside / "config.json").is_file() else folder)


def _check(size: int, autoencoder: Autoencoder, widths: Sequence[int]) -> None:
    if autoencoder.channels != 3:
        raise UserError(f"network.autoencoder: small needs one of RGB images, not of {autoencoder.channels} channels")
    if any(width % 32 for width in widths):
        raise UserError(f"network.widths: each must be a multiple of 32, not {', '.join(map(str, widths))}")
    least = autoencoder.factor * 2 ** (len(widths) - 1)
    if size % least:
        raise UserError(f"size must be a multiple of {least} for {len(widths)} levels, not {size}")
