"""What all `paper` commands are told, and what they make of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from laworder.config import group, option
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.planning import Step, steps
from laworder.paper.setting import Scale, Setting, checked_sets, parse_seeds
from laworder.paper.wanted import wanted
from laworder.runs.manifest import describe_device
from laworder.segmentation.train import pick_device


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Where the prepared data lie; demo scale draws its own."""

    polyps: Path | None = option(None, "folder that `data prepare polyps` made")
    brisc: Path | None = option(None, "folder that `data prepare brisc` made")
    kits19: Path | None = option(None, "folder that `data prepare kits19` made")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What the study uses and cannot make itself."""

    autoencoder: Path | None = option(None, "small: folder of the frozen autoencoder (TAEF2, or a `synth train-vae`)")
    sd15: str | None = option(None, "paper: Stable Diffusion 1.5, a hub id or a folder in diffusers format")
    controlnet: str | None = option(None, "paper: a released ControlNet to start from; none: the UNet's encoder")
    inception: Path | None = option(None, "file of Inception-2015, as `evaluate` takes it; none: FID is not measured")
    clip: str | None = option(None, "CLIP for CLIP-I, a hub id or a folder; none: not measured")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every command of the study is told."""

    scale: Scale = option(
        "demo", "demo: drawn data, minutes; small: real data, compact diffusion; paper: real data, SD 1.5"
    )
    seeds: str | None = option(None, "such as 0-4 or 0,2; none: 0-1 for demo, 0-2 for small, 0-4 for paper")
    recipe: str = option("paper", "preset of `seg train` for segmenters; recipes never mix in one table")
    out: Path = option(Path("study"), "folder of the study: runs, tables, figures, report")
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto; for every run")
    data: Sets = group(Sets, "where the prepared data lie")
    weights: Weights = group(Weights, "what the study uses and cannot make itself")


class Study:
    """The options, resolved."""

    def __init__(self, options: Options) -> None:
        self.options, self.root = options, options.out
        sets = checked_sets({name: getattr(options.data, name) for name in ("polyps", "brisc", "kits19")})
        self.setting = Setting(
            scale=options.scale,
            seeds=parse_seeds(options.seeds, options.scale),
            recipe=options.recipe,
            sets={} if options.scale == "demo" else sets,
            weights={name: getattr(options.weights, name) for name in Weights.__dataclass_fields__},
        )
        self.resolver = Resolver(self.root, device=options.device)

    @cached_property
    def device(self) -> str:
        """The kind of device that runs compute on."""
        return str(pick_device(self.options.device))

    def targets(self, name: str) -> list[Resolved]:
        """The jobs that a table, a figure or all of them read from."""
        return [self.resolver.resolve(job) for job in wanted(name).jobs(self.setting)]

    def plan(self, name: str) -> list[Step]:
        """Every job that it takes, each once however much shares it, needs first: with status and time."""
        jobs = self.resolver.every(wanted(name).jobs(self.setting))
        return steps(jobs, self.root, describe_device(self.device))
