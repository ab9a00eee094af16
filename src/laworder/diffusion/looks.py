"""Looks at a training: fixed masks drawn with the averaged weights, as pictures and as numbers.

A look depends on the weights alone: masks and noise are the same at every look, from (seed, name).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from laworder.data.load import Arrays
from laworder.diffusion import probe
from laworder.diffusion.ddim import sample_images, starting_noise
from laworder.diffusion.latents import Store, present
from laworder.diffusion.score import Score, as_pixels
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.task import DiffuseTask, Drawn
from laworder.law import strip
from laworder.report import contour
from laworder.runs import atomic_write, generator

FOLDER = "looks"
DELTA_TIMES = (0.1, 0.4, 0.7, 0.95)
"""Shares of the diffusion at which δ is shown."""


class Looks:
    """What is looked at: `pairs` are the real ones, `store` holds their latents."""

    def __init__(self, task: DiffuseTask, config: TrainConfig, pairs: Arrays, store: Store, score: Score) -> None:
        self.task, self.config, self.pairs, self.store, self.score = task, config, pairs, store, score
        self.masks = (pairs.masks > 0).float()
        seeds = [generator(config.seed, stream=f"look/{name}") for name in pairs.names]
        self.noise = starting_noise(task.backbone, seeds)
        self.shown = min(config.watch.images, len(pairs.names))
        self.looking = False

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers that every look gives, in order."""
        return self.score.names if self.config.stage == "prior" else (*self.score.names, *probe.NAMES)

    def __call__(self, step: int, folder: Path) -> dict[str, float] | None:
        """Draw, measure, and write the sheets of this step: the first process does, and the others give None. Where the
        weights are sharded these draw along, since a forward pass needs the shards of all."""
        first = self.task.place.first
        if not first and not self.task.sharded:
            return None
        self.looking = True  # still so where drawing fails
        with self.task.averaged(), self._ready():
            drawn = self.draw(self.masks)
            found = self.score(as_pixels(drawn)) if first else {}
            if self.config.stage == "control":
                found |= self._probe(drawn[: self.shown])
            deltas = self._deltas()
        self.looking = False
        if not first:
            return None
        target = folder / FOLDER
        target.mkdir(exist_ok=True)
        write_png(target / f"sheet-{step:08d}.png", self.sheet(as_pixels(drawn)))
        if deltas is not None:
            write_png(target / f"delta-{step:08d}.png", deltas)
        return {name: found[name] for name in self.names}

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Networks in eval mode, the autoencoder on the device, the arithmetic of training."""
        backbone, device = self.task.backbone, self.task.device
        training = [module for module in backbone.modules() if module.training]
        backbone.eval()
        low = torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16")
        try:
            with present(backbone.autoencoder, device), low:
                yield
        finally:
            for module in training:
                module.training = True

    def draw(self, masks: Float[Tensor, "n 1 size size"], *, first: int | None = None) -> Float[Tensor, "n c s s"]:
        """Images in [−1, 1] on the CPU for these masks, in the place of the fixed ones, with the fixed noise."""
        config, task = self.config, self.task
        rows = self.store.prompts[:first].to(task.device)
        text, empty = task.table[rows], task.table[:1]
        made: list[Tensor] = []
        for start in range(0, len(masks), config.watch.batch):
            part = slice(start, start + config.watch.batch)
            images = sample_images(
                task.backbone,
                masks[part] if config.stage == "control" else None,
                text[part],
                noise=self.noise[: len(masks)][part],
                steps=config.watch.steps,
                guidance=config.guidance,
                drops=config.watch.drops,
                empty=empty,
            )
            made.append(images.float().cpu())
        return torch.cat(made)

    def _probe(self, own: Float[Tensor, "n c s s"]) -> dict[str, float]:
        masks = self.masks[: self.shown]
        others = {kind: self.draw(shown, first=self.shown) for kind, shown in probe.probes(masks).items()}
        return probe.changes(own, others, masks)

    @torch.no_grad()
    def _deltas(self) -> UInt8[np.ndarray, "h w 3"] | None:
        """Strips of the mask on the latents' grid and of δ at a few times; None where the objective has no δ."""
        task, n = self.task, self.shown
        if task.config.stage != "control" or task.teacher is not None:
            return None
        clean = self.store.latents[0, :n].to(task.device)
        masks = self.masks[:n].to(task.device)
        text = task.table[self.store.prompts[:n].to(task.device)]
        last = task.backbone.scheduler.config.num_train_timesteps - 1
        rows: list[Tensor] = []
        for share in DELTA_TIMES:
            t = torch.full((n,), round(share * last), device=task.device)
            loss = task.loss(Drawn(clean, self.noise[:n].to(task.device), t, text, masks, None))
            if loss.delta is None:
                return None
            rows.append(loss.delta)
        small = torch.nn.functional.adaptive_max_pool2d(masks, rows[0].shape[-2:])
        lines = strip(small, *rows).numpy()
        return np.repeat(lines[..., None], 3, axis=2)

    def sheet(self, drawn: UInt8[Tensor, "n c s s"]) -> UInt8[np.ndarray, "h w 3"]:
        """One column a mask: mask, real image, drawn image with the mask's outline, drawn image."""
        columns = []
        for index in range(self.shown):
            mask = self.pairs.masks[index, 0].numpy() > 0
            real, made = rgb(self.pairs.images[index]), rgb(drawn[index])
            tiles = [real, made]
            if self.config.stage == "control":
                white = np.repeat((mask * 255).astype(np.uint8)[..., None], 3, axis=2)
                tiles = [white, real, contour(made, mask), made]
            columns.append(np.concatenate([np.pad(tile, ((2, 2), (2, 2), (0, 0))) for tile in tiles]))
        return np.concatenate(columns, axis=1)


def rgb(image: UInt8[Tensor, "c h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """A picture as Pillow wants it."""
    array = image.permute(1, 2, 0).numpy()
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else np.ascontiguousarray(array)


def write_png(path: Path, picture: UInt8[np.ndarray, "h w 3"]) -> None:
    """Whole or not at all."""
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    atomic_write(path, content.getvalue())
