"""The settings of `laworder synth train-vae`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laworder.config import group, option
from laworder.data.opening import Phantom


@dataclass(frozen=True, kw_only=True)
class VaeNetwork:
    """The autoencoder, of diffusers' classes."""

    kind: Literal["kl", "tiny"] = option("kl", "kl: AutoencoderKL, smooth latents; tiny: AutoencoderTiny, faster")
    widths: tuple[int, ...] = option(
        (32, 64, 128, 128), "channels of its levels, multiples of 8; each level but the last halves the side", above=0
    )
    blocks: int = option(1, "residual blocks a level", minimum=1)
    latent_channels: int = option(16, "channels of the latents", minimum=1)


@dataclass(frozen=True, kw_only=True)
class VaeOptimiser:
    """How the weights move."""

    lr: float = option(5e-4, "peak learning rate; falls to 0 as half a cosine", above=0)
    weight_decay: float = option(1e-4, "decoupled weight decay", minimum=0)
    warmup: int = option(50, "linear warm-up, shorter in short runs", unit="steps", minimum=0)
    clip: float | None = option(1.0, "largest norm of the gradient", above=0)
    ema: float = option(0.995, "decay of the averaged weights that are kept; 0: none", minimum=0, maximum=1)


@dataclass(frozen=True, kw_only=True)
class VaeLoss:
    """What a good reconstruction is."""

    scales: int = option(3, "sizes at which pixels and edges are compared, each half of the one before", minimum=1)
    edges: float = option(1.0, "weight of differences between neighbouring pixels beside pixels", minimum=0)
    lesion: float = option(1.0, "how often a lesion pixel counts", minimum=1)
    kl: float = option(1e-4, "kl: weight of the divergence of the latents from N(0, 1), per latent cell", minimum=0)


@dataclass(frozen=True, kw_only=True)
class VaeConfig:
    """Fit a small autoencoder to images, and write a run folder that `synth train --network.autoencoder` takes. The
    same command goes on where a killed run stopped."""

    data: str = option(meaning="folder of images and masks, prepared data, or the word phantom", positional=True)
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("runs/vae"), "run folder")
    size: int = option(256, "side of the images", unit="pixels", minimum=16)
    flips: Literal["none", "h", "hv"] = option("h", "mirror images that training sees: left-right, up-down too")
    seed: int = option(0, "of the split, the initial weights, the order of the data and every draw", minimum=0)
    steps: int = option(5000, "optimiser steps", minimum=1)
    batch: int = option(16, "images a step, over all processes and parts", minimum=1)
    accumulate: int = option(1, "parts that a batch is computed in, one after the other, to save memory", minimum=1)
    look_every: int = option(500, "steps between validations; the last step always has one", minimum=1)
    save_every: int = option(500, "steps between checkpoints", minimum=1)
    held_out: float = option(0.1, "share of the pairs that is kept for validation", above=0, maximum=0.9)
    split_by: Literal["group", "image"] = option("group", "what must not cross the split")
    split: Path | None = option(None, "split file of `laworder data split`; held_out and split_by then say nothing")
    fold: int = option(0, "which split of the file, where it holds several", minimum=0)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    precision: Literal["fp32", "bf16"] = option("fp32", "arithmetic of the network; weights stay fp32")
    log: Literal["auto", "none", "tensorboard", "wandb"] = option(
        "auto", "where metrics are shown beside the run folder; auto: TensorBoard where it is installed"
    )
    network: VaeNetwork = group(VaeNetwork, "the autoencoder")
    loss: VaeLoss = group(VaeLoss, "what a good reconstruction is")
    optimiser: VaeOptimiser = group(VaeOptimiser, "how the weights move")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")
