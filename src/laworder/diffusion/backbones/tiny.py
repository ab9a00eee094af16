"""`tiny`: pixels, under four million weights, a minute or two on a CPU; for the demo and for tests.

The image is not compressed: 4×4 pixels become the channels of one cell, so that a small UNet on a 16×16 grid is enough
for a picture of 64×64.
"""

from __future__ import annotations

from collections.abc import Sequence

from laworder.diffusion.autoencoders import Pixels
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.control import fresh_control
from laworder.diffusion.library import library
from laworder.diffusion.schedules import noise_schedule
from laworder.diffusion.text import FixedWords

FACTOR, WIDTH, WIDTHS = 4, 16, (64, 96)


def tiny(
    *, size: int = 64, channels: int = 3, prompts: Sequence[str] = (), prediction: str = "v_prediction"
) -> Backbone:
    """The untrained backbone; its weights come from torch's global generator."""
    diffusers = library("diffusers")
    pixels = Pixels(channels=channels, factor=FACTOR)
    unet = diffusers.UNet2DConditionModel(
        sample_size=size // FACTOR,
        in_channels=pixels.latent_channels,
        out_channels=pixels.latent_channels,
        block_out_channels=WIDTHS,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=2,
        norm_num_groups=8,
    )
    return Backbone(
        name="tiny",
        size=size,
        unet=unet,
        controlnet=fresh_control("tiny", unet, FACTOR),
        autoencoder=pixels,
        words=FixedWords(prompts, width=WIDTH),
        scheduler=noise_schedule(prediction),
        mean=(0.0,),
        std=(0.5,),
    )
