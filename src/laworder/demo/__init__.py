"""`laworder demo`: the whole story on drawn data, ending in a report. Nothing is fetched, no GPU is needed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from laworder.config import option
from laworder.console import say
from laworder.demo.story import SIZE, Story, story
from laworder.demo.together import together
from laworder.errors import UserError
from laworder.paper.identity import Resolver
from laworder.runs import atomic_write


@dataclass(frozen=True, kw_only=True)
class Config:
    """Draw MR-like images with small lesions and audit them; train a diffusion model with LAW and one with the
    plain loss, and let both draw images for the same masks; judge these; train ORDER on the real images, and on real
    and synthetic ones; write one report. Killed and started again, it goes on where it was."""

    out: Path = option(Path("demo"), "folder for everything it makes")
    seed: int = option(0, "of the drawn data and of every training", minimum=0)
    images: int = option(240, "pairs to draw; one in five is held out", minimum=40)
    steps: int = option(500, "updates of each diffusion model", unit="steps", minimum=1)
    epochs: int = option(30, "times that ORDER sees its real images", minimum=2)


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    return [
        f"draw {config.images} MR-like pairs of {SIZE}×{SIZE} pixels, hold one in five out, audit them",
        f"train two small diffusion models for {config.steps} updates each, under the plain loss and under LAW",
        "draw an image for each training mask with either",
        f"train ORDER on the real pairs for {config.epochs} epochs, and let it look for the lesions in all of them",
        "train it on real and LAW's images for as many updates, and judge both on the held-out pairs",
        f"write {config.out / 'report.html'}",
    ]


def run(config: Config) -> None:
    """Do what is not done yet, two things at a time, and write the page."""
    from laworder.demo.page import report  # draws with numpy and Pillow; --help and --dry-run need none of it

    began = time.monotonic()
    made, resolver = _story(config), Resolver(config.out, device="cpu")
    failed = [outcome for outcome in together(resolver.every(list(made.jobs))) if outcome.state == "failed"]
    if failed:
        raise UserError(f"{failed[0].key}: {failed[0].message}")
    target = config.out / "report.html"
    atomic_write(target, report(made, resolver).html())
    say(f"done in {time.monotonic() - began:.0f} s; the report: {target.resolve()}")


def _story(config: Config) -> Story:
    return story(images=config.images, steps=config.steps, epochs=config.epochs, seed=config.seed)
