"""The settings of `laworder synth sample`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from laworder.config import group, option
from laworder.data.opening import Phantom
from laworder.diffusion.sampling.jitter import Jitter
from laworder.diffusion.schedules import SCHEDULERS
from laworder.diffusion.settings import GUIDANCE
from laworder.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which images are kept, by how well a segmenter finds the lesion that was asked for."""

    judge: str | None = option(None, "segmenter that looks: a `seg train` run, a folder, or a Hub id; none: keep all")
    least: float = option(0.5, "least Dice of what it finds with the mask", minimum=0, maximum=1)


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """Draw images for masks, and write both as prepared data: images, masks, dataset.json, and a statement of where
    each came from. The same command goes on where a killed one stopped."""

    model: Path = option(meaning="run of `synth train`, or the model folder in it", positional=True)
    data: str = option(
        meaning="masks: prepared data, a folder of images and masks, one of masks alone, or the word phantom",
        positional=True,
    )
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("synthetic"), "folder for the images, their masks and dataset.json")
    count: int = option(1, "images for each mask", minimum=1)
    only: tuple[str, ...] = option((), "make these images alone, by the names that the whole set gives them")
    augment: bool = option(False, "vary each mask first; jitter says how far")
    seed: int = option(0, "of the noise and of varied masks", minimum=0)
    prompt: str | None = option(None, "of every image; none: as in training")
    steps: int = option(50, "sampling steps", minimum=1)
    guidance: float | None = option(None, "none: the model's own, 10 for sd15; 1 costs half", minimum=0)
    drops: Literal["prompt", "mask"] | None = option(
        None, "what guidance's free branch does without; none: the model's own, prompt as a rule"
    )
    eta: float = option(0.0, "ddim: share of fresh noise in each step", minimum=0, maximum=1)
    scheduler: str = option("ddim", f"how steps are taken: {', '.join(SCHEDULERS)}")
    scale: float = option(1.0, "strength of the mask's control", minimum=0)
    batch: int = option(16, "images drawn at once; halved where memory does not suffice", minimum=1)
    workers: int | None = option(None, "threads that read and write; one a core where none is given", minimum=1)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    precision: Literal["fp32", "bf16"] = option("fp32", "arithmetic of the networks")
    compile: Literal["no", "default", "graphs", "tuned"] = option(
        "no", "compile the networks: default; graphs for small batches (CUDA graphs); tuned tries kernels first"
    )
    shard: str | None = option(None, "K/N: make the K-th of N parts, each on a machine of its own")
    filter: Filter = group(Filter, "keep only images in which a segmenter finds the lesion again")
    jitter: Jitter = group(Jitter, "how far varied masks are from the real ones")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


@dataclass(frozen=True)
class Recipe:
    """How an image comes about, with everything that the model's card decides filled in."""

    seed: int
    scheduler: str
    steps: int
    guidance: float
    eta: float
    drops: Literal["prompt", "mask"]
    scale: float
    precision: str


def recipe(config: SampleConfig, card: dict[str, Any]) -> Recipe:
    """What the settings leave open comes from how the model was validated, else from its kind."""
    own = card.get("sampling", {})
    return Recipe(
        seed=config.seed,
        scheduler=config.scheduler,
        steps=config.steps,
        guidance=own.get("guidance", GUIDANCE[card["backbone"]]) if config.guidance is None else config.guidance,
        eta=config.eta,
        drops=config.drops or own.get("drops", "prompt"),
        scale=config.scale,
        precision=config.precision,
    )


def shard_of(text: str | None) -> tuple[int, int]:
    """`K/N` as (K − 1, N); (0, 1) for none."""
    if text is None:
        return 0, 1
    first, slash, last = text.partition("/")
    if not slash or not (first.isdecimal() and last.isdecimal()) or not 1 <= int(first) <= int(last):
        raise UserError(f"shard: write K/N with K from 1 to N, such as 1/4, not {text!r}")
    return int(first) - 1, int(last)
