"""The settings of `laworder synth train`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from laworder.config import group, option
from laworder.data.opening import Phantom

SIZES = {"tiny": 64, "small": 256, "sd15": 384}
PREDICTION = {"tiny": "sample", "small": "v_prediction", "sd15": "epsilon"}
"""tiny has fewer channels than a cell has pixels: noise does not fit through it, the image does (Li & He 2025)."""
GUIDANCE = {"tiny": 1.0, "small": 1.0, "sd15": 10.0}
MaskResize = Literal["auto", "nearest", "nearest_corner", "area", "any"]


@dataclass(frozen=True, kw_only=True)
class Law:
    """Constants of the objective; none keeps the objective's own value."""

    lr: float | None = option(None, "learning rate of φ; none: the denoiser's", above=0)
    weight: float | None = option(None, "constant: how often a lesion pixel counts", above=0)
    tau: float | None = option(None, "law, law_plus: temperature of δ", above=0)
    gamma: float | None = option(None, "law, law_plus: how far δ may tilt the weights", minimum=0)
    dice_weight: float | None = option(None, "law: λ of the Dice term", minimum=0)
    w_min: float | None = option(None, "law: lower clamp", minimum=0)
    w_max: float | None = option(None, "law, law_plus: upper clamp; law_no_max is law without", above=0)
    hidden: int | None = option(None, "law, law_plus: width of φ", minimum=1)
    mean: Literal["sample", "batch"] | None = option(None, "law: over what weights are normalised")
    detach: bool | None = option(None, "law: φ's gradient stops before the denoiser")
    renormalise: bool | None = option(None, "law: mean weight 1 once more after the clamp")
    share: float | None = option(None, "law_plus: the lesion's share of the weight", above=0, maximum=1)
    border: float | None = option(None, "law_plus: lift of the band around the lesion", minimum=0)
    border_width: int | None = option(None, "law_plus: half width of that band", unit="cells", minimum=1)
    fit_weight: float | None = option(None, "law_plus: factor of the term that teaches δ", minimum=0)
    time: bool | None = option(None, "law_plus: φ also sees the diffusion time")

    def given(self) -> dict[str, Any]:
        """What was set, as arguments of the objective."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "lr"}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """How the weights move."""

    name: Literal["adamw", "adamw8bit"] = option("adamw", "update rule; adamw8bit needs bitsandbytes and CUDA")
    lr: float = option(1e-4, "learning rate", above=0)
    weight_decay: float = option(1e-2, "decoupled weight decay", minimum=0)
    warmup: int = option(0, "linear warm-up", unit="steps", minimum=0)
    schedule: Literal["constant", "cosine"] = option("constant", "of the learning rate")
    clip: float | None = option(1.0, "largest norm of the gradient", above=0)
    ema: float = option(0.999, "decay of the averaged weights that are kept; 0: none", minimum=0, maximum=1)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The diffusion itself; for sd15 what its weights were trained with is kept."""

    prediction: Literal["v_prediction", "epsilon", "sample"] | None = option(
        None, "what the UNet predicts; none: the image itself (sample) for tiny, v_prediction for small"
    )
    betas: Literal["scaled_linear", "linear", "squaredcos_cap_v2"] = option("scaled_linear", "shape of the schedule")
    weighting: Literal["none", "min_snr", "p2"] = option("none", "weight of a timestep's loss")
    snr_gamma: float = option(5.0, "γ of min_snr", above=0)


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is built or loaded, and which part of it learns."""

    weights: str | None = option(None, "sd15: hub id or folder in diffusers format")
    controlnet: str | None = option(None, "sd15: a released ControlNet to start from; none: the UNet's encoder")
    autoencoder: Path | None = option(None, "small: folder of TAEF2, of diffusers, or a run of `synth train-vae`")
    widths: tuple[int, ...] = option((96, 160, 192), "small: channels of the UNet's levels", above=0)
    blocks: int = option(2, "small: residual blocks a level", minimum=1)
    dropout: float = option(0.0, "small: dropout in the UNet's residual blocks", minimum=0, maximum=0.9)
    unlock_decoder: bool = option(True, "the UNet's decoder learns too, as ControlNet's sd_locked=False")
    lora: int = option(0, "rank of LoRA in the ControlNet instead of full training; 0: full", minimum=0)
    gradient_checkpointing: bool = option(False, "compute activations twice to save memory")
    shard: bool = option(False, "several processes: each holds a part of weights, gradients and optimiser (FSDP)")
    compile: bool = option(False, "compile UNet and ControlNet first; pays off in long runs")


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What is looked at during training: fixed masks, sampled with the averaged weights."""

    every: int = option(250, "steps between looks; the last step always has one", minimum=1)
    images: int = option(8, "masks on the sheet, and in the control probe", minimum=2)
    validation: int = option(64, "masks whose images decide which weights are kept", minimum=2)
    batch: int = option(16, "images sampled at once", minimum=1)
    steps: int = option(25, "sampling steps", minimum=1)
    guidance: float | None = option(None, "none: 10 for sd15, else 1", minimum=0)
    drops: Literal["prompt", "mask"] = option("prompt", "what guidance's free branch does without")
    judge: str | None = option(None, "segmenter that looks for the lesions: a `seg train` run, a folder, or a Hub id")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a diffusion model that draws an image for a mask, and write a run folder with the model, sheets of samples,
    what the control probe found, and a report. The same command goes on where a killed run stopped."""

    data: str = option(meaning="folder of images and masks, prepared data, or the word phantom", positional=True)
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("runs/synth"), "run folder")
    backbone: Literal["small", "tiny", "sd15"] = option("small", "which network; tiny is for demos and tests")
    stage: Literal["control", "prior"] = option("control", "prior learns images without masks, control the masks")
    prior: Path | None = option(None, "run (or model folder) that stage control starts from")
    objective: str = option("law", "uniform, constant, ratio, distillation, law, law_plus, or a row of the ablation")
    size: int | None = option(None, "side of the images; none: 64 for tiny, 256 for small, 384 for sd15", minimum=16)
    channels: Literal[1, 3] = option(3, "tiny: 1 is gray; the others are RGB")
    mask_resize: MaskResize = option("auto", "how masks reach the latents; auto: nearest, or any where lesions vanish")
    prompt: str = option("", "of every pair, in the words of the data set")
    class_prompts: tuple[str, ...] = option((), "instead of it, for lesion class 1, 2 …: of the mask's largest class")
    prompt_drop: float = option(0.05, "share of samples that train without prompt", minimum=0, maximum=1)
    flips: Literal["none", "h", "hv"] = option("h", "mirror images that training sees: left-right, up-down too")
    seed: int = option(0, "of the split, the initial weights, the order of the data and every draw", minimum=0)
    steps: int = option(1000, "optimiser steps", minimum=1)
    batch: int = option(20, "images a step, over all processes and parts", minimum=1)
    accumulate: int = option(1, "parts that a batch is computed in, one after the other, to save memory", minimum=1)
    save_every: int = option(500, "steps between checkpoints", minimum=1)
    held_out: float = option(0.1, "share of the pairs that is kept for validation", above=0, maximum=0.9)
    split_by: Literal["group", "image"] = option("group", "what must not cross the split; the paper splits by image")
    split: Path | None = option(None, "split file of `laworder data split`; held_out and split_by then say nothing")
    fold: int = option(0, "which split of the file, where it holds several", minimum=0)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    precision: Literal["fp32", "bf16"] = option("fp32", "arithmetic of the networks; weights stay fp32")
    cache_gb: float = option(
        16.0,
        "latents and masks up to this size stay in the device's memory, more in the machine's",
        unit="GB",
        minimum=0,
    )
    log: Literal["auto", "none", "tensorboard", "wandb"] = option(
        "auto", "where metrics are shown beside the run folder; auto: TensorBoard where it is installed"
    )
    law: Law = group(Law, "constants of the objective")
    noise: Noise = group(Noise, "the diffusion itself")
    optimiser: Optimiser = group(Optimiser, "how the weights move")
    network: Network = group(Network, "what is built or loaded, and which part of it learns")
    watch: Watch = group(Watch, "what is looked at during training")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")

    @property
    def side(self) -> int:
        """The images' side."""
        return SIZES[self.backbone] if self.size is None else self.size

    @property
    def image_channels(self) -> int:
        return self.channels if self.backbone == "tiny" else 3

    @property
    def prediction(self) -> str:
        """What the UNet predicts, where that is ours to choose."""
        return PREDICTION[self.backbone] if self.noise.prediction is None else self.noise.prediction

    @property
    def guidance(self) -> float:
        """For looks during training, and the saved model's default."""
        return GUIDANCE[self.backbone] if self.watch.guidance is None else self.watch.guidance
