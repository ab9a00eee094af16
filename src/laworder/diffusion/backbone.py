"""A mask-conditioned denoiser with everything around it: the seam that training and sampling see.

encode, decode, embed, denoise(latents, t, text, mask), scheduler. Which networks stand behind it is the business of
`laworder.diffusion.backbones`; all of them are diffusers' own classes, and a saved one is a folder in diffusers' layout

    unet/  controlnet/  vae/  text_encoder/  tokenizer/  scheduler/  laworder.json

(for Stable Diffusion with the `model_index.json` of a StableDiffusionControlNetPipeline). `laworder.json` says what
diffusers has no place for: which backbone, its size and prompts, the latents' statistics, what it was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from laworder.diffusion.autoencoders import Autoencoder
from laworder.diffusion.text import Words
from laworder.errors import UserError

NAMES = ("sd15", "small", "tiny")


class Backbone(nn.Module):
    """UNet, ControlNet, autoencoder, text and noise schedule as one.

    name:       which assembly this is (`NAMES`)
    size:       side of its images in pixels
    unet:       UNet2DConditionModel
    controlnet: ControlNetModel; None after a stage that trains without masks
    autoencoder, words: images ↔ raw latents, prompts → embeddings
    scheduler:  the noise schedule of training, whose config says what is predicted
    mean, std:  of the raw latents, per channel (or one for all): what the UNet sees is (raw − mean) / std
    card:       what `laworder.json` says beyond that (objective, prompts, data, …)
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        name: str,
        size: int,
        unet: nn.Module,
        controlnet: nn.Module | None,
        autoencoder: Autoencoder,
        words: Words,
        scheduler: Any,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        card: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if size % autoencoder.factor:
            raise UserError(f"size must be a multiple of {autoencoder.factor} for {name}, not {size}")
        self.name, self.size = name, size
        self.unet: Any = unet
        self.controlnet: Any = controlnet
        self.autoencoder, self.words, self.scheduler = autoencoder, words, scheduler
        self.register_buffer("mean", torch.tensor(list(mean)).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(list(std)).reshape(1, -1, 1, 1), persistent=False)
        self.card: dict[str, Any] = dict(card or {})

    @property
    def latent_channels(self) -> int:
        return self.autoencoder.latent_channels

    @property
    def factor(self) -> int:
        """Image pixels a side for each cell of the latents."""
        return self.autoencoder.factor

    @property
    def image_channels(self) -> int:
        return self.autoencoder.channels

    @property
    def side(self) -> int:
        """Cells a side of its latents."""
        return self.size // self.factor

    @property
    def prediction(self) -> str:
        """What the UNet predicts, in diffusers' words: epsilon, v_prediction or sample."""
        return str(self.scheduler.config.prediction_type)

    @property
    def device(self) -> torch.device:
        return next(self.unet.parameters()).device

    @property
    def vae(self) -> nn.Module | None:
        """The autoencoder's network; None where there is none (pixels)."""
        return getattr(self.autoencoder, "network", None)

    @torch.no_grad()
    def encode(
        self, images: Float[Tensor, "b c h w"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "b z h2 w2"]:
        """Images in [−1, 1] → latents as the UNet sees them; with a generator a draw, else the mode."""
        raw = self.autoencoder.encode(images, generator)
        return (raw - self.mean.to(raw)) / self.std.to(raw)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "b z h w"]) -> Float[Tensor, "b c h2 w2"]:
        """Latents as the UNet sees them → images in [−1, 1]."""
        kind = next(self.autoencoder.parameters(), latents).dtype
        raw = latents.float() * self.std.to(latents.device) + self.mean.to(latents.device)
        return self.autoencoder.decode(raw.to(kind)).float().clamp(-1, 1)

    def embed(self, prompts: Sequence[str]) -> Float[Tensor, "b tokens width"]:
        """One embedding a prompt; "" is what guidance starts from."""
        return self.words.embed(prompts)

    def denoise(
        self,
        latents: Float[Tensor, "b z h w"],
        t: Int[Tensor, " b"] | Int[Tensor, ""],
        text: Float[Tensor, "b tokens width"],
        mask: Float[Tensor, "b k full full"] | None,
        *,
        scale: float = 1.0,
        controlnet: nn.Module | None = None,
    ) -> Float[Tensor, "b z h w"]:
        """The UNet's prediction under a mask at image resolution; None for the image prior alone.

        `controlnet` takes the place of the backbone's own (a distillation's teacher, whose `mask` has image channels).
        """
        if mask is None:
            return self.unet(latents, t, encoder_hidden_states=text, return_dict=False)[0]
        control: Any = self.controlnet if controlnet is None else controlnet
        if control is None:
            raise UserError(f"this {self.name} backbone was trained without masks (stage prior): it has no ControlNet")
        channels = int(control.config.conditioning_channels)
        shown = mask.to(latents.dtype)
        if shown.shape[1] == 1 and channels > 1 and controlnet is None:
            shown = shown.expand(-1, channels, -1, -1)
        down, mid = control(
            latents,
            t,
            encoder_hidden_states=text,
            controlnet_cond=shown,
            conditioning_scale=scale,
            return_dict=False,
        )
        return self.unet(
            latents,
            t,
            encoder_hidden_states=text,
            down_block_additional_residuals=down,
            mid_block_additional_residual=mid,
            return_dict=False,
        )[0]

    def save(self, folder: Path | str) -> None:
        """Write the model folder, whole or not at all."""
        from laworder.diffusion.folders import save_backbone

        save_backbone(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, device: torch.device | str = "cpu") -> Backbone:
        """A folder that `save` wrote (or a `synth train` run that holds one), ready to sample."""
        from laworder.diffusion.folders import load_backbone

        return load_backbone(Path(folder), torch.device(device))
