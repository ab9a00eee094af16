"""The settings of `laworder seg train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laworder.config import group, option
from laworder.data.opening import Phantom


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What is done to each training batch, on the device."""

    flip_h: float = option(0.5, "probability of a left-right mirror image", minimum=0, maximum=1)
    flip_v: float = option(0.5, "probability of an up-down mirror image", minimum=0, maximum=1)
    rotate: float = option(15.0, "largest rotation either way", unit="degrees", minimum=0, maximum=180)
    scale: float = option(0.0, "largest zoom either way; 0.25 is from 1/1.25 to 1.25", minimum=0, maximum=4)
    shift: float = option(0.0, "largest shift along each axis", unit="share of the side", minimum=0, maximum=1)
    brightness: float = option(0.0, "largest relative change of brightness", minimum=0, maximum=1)
    contrast: float = option(0.0, "largest relative change of contrast", minimum=0, maximum=1)
    gamma: float = option(0.0, "largest change of gamma", minimum=0, maximum=4)
    saturation: float = option(0.0, "largest relative change of saturation", minimum=0, maximum=1)
    hue: float = option(0.0, "largest turn of the hue", unit="degrees", minimum=0, maximum=180)


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """How the weights move. The defaults are the paper's."""

    name: Literal["ademamix", "adamw"] = option("ademamix", "update rule")
    lr: float = option(1e-4, "peak learning rate", above=0)
    floor: float = option(1e-6, "learning rate at the end of the cosine", minimum=0)
    weight_decay: float = option(1e-4, "decoupled weight decay", minimum=0)
    alpha: float = option(5.0, "weight of AdEMAMix's slow average", minimum=0)
    beta3: float = option(0.9999, "decay of AdEMAMix's slow average", above=0, maximum=1)
    mix_warmup: int = option(0, "updates over which alpha and beta3 rise to their values", unit="steps", minimum=0)
    warmup: int = option(0, "linear warm-up", unit="steps", minimum=0)
    clip: float | None = option(None, "largest norm of the gradient", above=0)
    ema: float = option(
        0.0, "decay of the averaged weights and statistics that are validated and kept; 0: none", minimum=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a segmenter on pairs of images and masks, judge it on held-out ones, and write a run folder with weights,
    metrics and a report. The same command goes on where a killed run stopped."""

    data: str = option(meaning="folder of images and masks, or the word phantom", positional=True)
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("runs/seg"), "run folder")
    model: str = option("order_01", "a registered segmenter, as `laworder models` lists them")
    size: int = option(256, "side to which images are resized", unit="pixels", minimum=32)
    channels: Literal[1, 3] = option(3, "1 reads images as gray, 3 as RGB")
    classes: int = option(1, "1 for lesion or not; else classes of the masks, background included", minimum=1)
    seed: int = option(0, "of the split, the initial weights, the order of the data and every draw", minimum=0)
    seeds: str | None = option(
        None, "train several seeds at once, such as 0-4 or 0,2; each has the folder seed-N of `out`, like a run alone"
    )
    epochs: int = option(100, "times that every training image is seen", minimum=1)
    batch: int = option(16, "images an update, over all processes and parts", minimum=1)
    accumulate: int = option(1, "parts that a batch is computed in, one after the other, to save memory", minimum=1)
    held_out: float = option(0.1, "share of the pairs that is kept for validation", above=0, maximum=0.9)
    split_by: Literal["group", "image"] = option("group", "what must not cross the split; the paper splits by image")
    split: Path | None = option(None, "split file of `laworder data split`; held_out and split_by then say nothing")
    fold: int = option(0, "which split of the file, where it holds several", minimum=0)
    validate_every: int = option(1, "epochs between validations", minimum=1)
    patience: int | None = option(
        None, "validations in a row without a better Dice after which training ends early; none: never", minimum=1
    )
    class_weights: tuple[float, ...] | None = option(
        None, "weight of each class's pixels in the cross-entropy, background first; none: all 1", minimum=0
    )
    deep_supervision: bool = option(
        True, "train all outputs of a model that has several (PraNet, EGE-UNet); off: the finest"
    )
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    precision: Literal["fp32", "bf16"] = option("fp32", "arithmetic of the network; weights stay fp32")
    channels_last: bool = option(False, "keep each pixel's channels together in memory; often faster in bf16 on GPUs")
    compile: bool = option(False, "compile the network first; pays off in long runs")
    cache_gb: float = option(
        8.0,
        "decoded training pairs up to this size stay in the device's memory; more go through a file of this size",
        unit="GB",
        minimum=0,
    )
    log: Literal["auto", "none", "tensorboard", "wandb"] = option(
        "auto", "where metrics are shown beside the run folder; auto: TensorBoard where it is installed"
    )
    augment: Augmentation = group(Augmentation, "what is done to each training batch")
    optimiser: Optimiser = group(Optimiser, "how the weights move")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")
