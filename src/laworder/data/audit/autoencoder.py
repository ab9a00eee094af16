"""An autoencoder from a path, as one function: images in [−1, 1] → images in [−1, 1].

Two kinds of folder are read: what diffusers saves (`config.json` with an `AutoencoderTiny` or an `AutoencoderKL`), and
the published weights of the tiny autoencoder TAEF2 (`taef2_encoder.pth`, `taef2_decoder.pth`), whose network is small
enough to stand here. Only tensors are read from those files, never code.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laworder.errors import MissingExtraError, UserError

Reconstruct = Callable[[Tensor], Tensor]
"""Images (b 3 h w) in [−1, 1] → their reconstructions."""

_KINDS = ("AutoencoderTiny", "AutoencoderKL")
_WEIGHTS = ("taef2_encoder.pth", "taef2_decoder.pth")


def open_autoencoder(path: Path) -> Reconstruct:
    """The round trip through the autoencoder in a folder."""
    if (path / "config.json").is_file():
        return _from_diffusers(path)
    if all((path / name).is_file() for name in _WEIGHTS):
        return _from_taef2(path)
    raise UserError(
        f"{path}: no autoencoder: expected config.json (as diffusers saves an {' or '.join(_KINDS)}) or "
        f"{' and '.join(_WEIGHTS)}"
    )


def _from_diffusers(path: Path) -> Reconstruct:
    try:
        kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("_class_name")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path / 'config.json'}: not a config of diffusers ({error})") from error
    if kind not in _KINDS:
        raise UserError(f"{path / 'config.json'}: its class is {kind!r}, but only {' and '.join(_KINDS)} are read here")
    try:
        diffusers: Any = importlib.import_module("diffusers")
    except ImportError as error:
        raise MissingExtraError("diffusers", "synth") from error
    try:
        network = getattr(diffusers, kind).from_pretrained(path, use_safetensors=True).eval()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: diffusers cannot load it: {str(error).splitlines()[0]}") from error

    @torch.inference_mode()
    def reconstruct(images: Tensor) -> Tensor:
        code = network.encode(images)
        latents = code.latents if kind == "AutoencoderTiny" else code.latent_dist.mode()
        return network.decode(latents).sample

    return reconstruct


def load_taef2(path: Path) -> Taef2:
    """TAEF2 from a folder with its two published files."""
    network = Taef2()
    for part, name in zip((network.encoder, network.decoder), _WEIGHTS, strict=True):
        if not (path / name).is_file():
            raise UserError(f"{path}: no autoencoder: expected config.json (of diffusers) or {' and '.join(_WEIGHTS)}")
        try:
            part.load_state_dict(torch.load(path / name, map_location="cpu", weights_only=True))
        except (RuntimeError, OSError, EOFError, ValueError) as error:
            raise UserError(f"{path / name}: not the weights of TAEF2 ({str(error).splitlines()[0]})") from error
    return network.eval()


def _from_taef2(path: Path) -> Reconstruct:
    network = load_taef2(path)

    @torch.inference_mode()
    def reconstruct(images: Tensor) -> Tensor:
        return network(images)

    return reconstruct


class Block(nn.Module):
    """Three 3×3 convolutions with ReLU between, added to the input; `wide` first adds a normalised 1×1 branch."""

    def __init__(self, *, width: int = 64, wide: bool = False) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(width, width, 3, padding=1) for _ in range(3)]
        self.conv = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), convolutions[2])
        self.pool: nn.Sequential | None = None
        if wide:
            first, last = nn.Conv2d(width, 4 * width, 1, bias=False), nn.Conv2d(4 * width, width, 1, bias=False)
            self.pool = nn.Sequential(first, nn.GroupNorm(4, 4 * width), nn.ReLU(), last)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        x = x if self.pool is None else x + self.pool(x)
        return torch.relu(self.conv(x) + x)


class SoftClamp(nn.Module):
    """3 · tanh(x / 3): latents that stray are drawn back."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return 3 * torch.tanh(x / 3)


class Taef2(nn.Module):
    """The tiny autoencoder: 8× down to 32 channels and back."""

    def __init__(self, *, width: int = 64, latents: int = 32) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride, bias=bias)

        down: list[nn.Module] = [conv(3, width), Block(width=width)]
        for wide in (False, False, True):
            down += [conv(width, width, 2, False), *(Block(width=width, wide=wide) for _ in range(3))]
        self.encoder = nn.Sequential(*down, conv(width, latents))
        up: list[nn.Module] = [SoftClamp(), conv(latents, width), nn.ReLU()]
        for wide in (True, False, False):
            blocks = [Block(width=width, wide=wide) for _ in range(3)]
            up += [*blocks, nn.Upsample(scale_factor=2), conv(width, width, 1, False)]
        self.decoder = nn.Sequential(*up, Block(width=width), conv(width, 3))

    def forward(self, images: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
        """The reconstruction; the networks work in [0, 1]."""
        return self.decoder(self.encoder((images + 1) / 2)).clamp(0, 1) * 2 - 1
