"""Images ↔ latents, behind one pair of calls: pixels rearranged, TAEF2, or an autoencoder of diffusers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.data.audit.autoencoder import Taef2, load_taef2
from laworder.diffusion.library import library
from laworder.errors import UserError

KINDS = ("AutoencoderKL", "AutoencoderTiny")
_TAEF2 = "Taef2"
_WEIGHTS = "diffusion_pytorch_model.safetensors"


class Autoencoder(nn.Module, ABC):
    """Images (b c h w) in [−1, 1] ↔ raw latents; `factor` pixels a side become one cell."""

    channels: int
    latent_channels: int
    factor: int

    @abstractmethod
    def encode(self, images: Tensor, generator: torch.Generator | None = None) -> Float[Tensor, "b z h w"]:
        """The latents: their mean, or with a generator a draw, where the encoder gives a distribution."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Float[Tensor, "b c h w"]:
        """The images; values may stray beyond [−1, 1]."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write it as `vae/` of a model folder, where it has weights."""


class Pixels(Autoencoder):
    """No network: blocks of factor × factor pixels become channels, and back, without loss."""

    def __init__(self, *, channels: int, factor: int) -> None:
        super().__init__()
        self.channels, self.factor, self.latent_channels = channels, factor, channels * factor**2

    def encode(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        del generator
        return F.pixel_unshuffle(images, self.factor)

    def decode(self, latents: Tensor) -> Tensor:
        return F.pixel_shuffle(latents, self.factor)

    def save(self, folder: Path) -> None:
        """Nothing to write."""


class TinyFlux(Autoencoder):
    """TAEF2: 8× down to 32 channels. Small and without a distribution."""

    channels, latent_channels, factor = 3, 32, 8

    def __init__(self, network: Taef2) -> None:
        super().__init__()
        self.network = network

    def encode(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        del generator
        return self.network.encoder((images + 1) / 2)

    def decode(self, latents: Tensor) -> Tensor:
        return self.network.decoder(latents) * 2 - 1

    def save(self, folder: Path) -> None:
        target = folder / "vae"
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps({"_class_name": _TAEF2}) + "\n", encoding="utf-8")
        weights = {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}
        save_file(weights, target / _WEIGHTS, metadata={"format": "pt"})


class Diffusers(Autoencoder):
    """AutoencoderKL or AutoencoderTiny."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network: Any = network
        config = network.config
        self.channels, self.latent_channels = config.in_channels, config.latent_channels
        self.is_tiny = type(network).__name__ == KINDS[1]
        blocks = config.encoder_block_out_channels if self.is_tiny else config.block_out_channels
        self.factor = 2 ** (len(blocks) - 1)

    def encode(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        code = self.network.encode(images)
        if self.is_tiny:
            return code.latents
        return code.latent_dist.mode() if generator is None else code.latent_dist.sample(generator)

    def decode(self, latents: Tensor) -> Tensor:
        return self.network.decode(latents).sample

    def save(self, folder: Path) -> None:
        self.network.save_pretrained(folder / "vae", safe_serialization=True)


def open_autoencoder(folder: Path) -> Autoencoder:
    """The autoencoder in a folder: one of diffusers, ours as `save` wrote it, or the published files of TAEF2."""
    config = folder / "config.json"
    if not config.is_file():
        return TinyFlux(load_taef2(folder)).eval()
    try:
        kind = json.loads(config.read_text(encoding="utf-8")).get("_class_name")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{config}: not the config of an autoencoder ({error})") from error
    if kind == _TAEF2:
        network = Taef2()
        network.load_state_dict(load_file(folder / _WEIGHTS))
        return TinyFlux(network).eval()
    if kind not in KINDS:
        raise UserError(f"{config}: its class is {kind!r}; known: {', '.join(KINDS)} and {_TAEF2}")
    try:
        return Diffusers(getattr(library("diffusers"), kind).from_pretrained(folder, use_safetensors=True)).eval()
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: diffusers cannot load it: {str(error).splitlines()[0]}") from error
