"""Sheets as in the paper's qualitative figures: mask, real image, and for each model its image and the overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from laworder.data.pairs import Source
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.inspection.facts import Model
from laworder.diffusion.sampling.engine import Engine
from laworder.diffusion.sampling.jobs import jobs_of
from laworder.diffusion.sampling.masks import Survey, at_size
from laworder.diffusion.sampling.prompts import Prompts
from laworder.diffusion.sampling.settings import Recipe
from laworder.report import contour

Picture = UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True)
class Row:
    """One mask with everything that stands beside it: (what it is, picture) from left to right."""

    name: str
    tiles: list[tuple[str, Picture]]


def spread_by_size(found: Survey, most: int) -> list[int]:
    """At most so many of the masks with a lesion, evenly from the smallest lesion to the largest."""
    order = sorted((index for index, area in enumerate(found.areas) if area), key=lambda i: (found.areas[i], i))
    if len(order) <= most:
        return order
    return [order[k] for k in np.linspace(0, len(order) - 1, most).round().astype(int).tolist()]


def rows_of(source: Source, chosen: Sequence[int], size: int) -> list[Row]:
    """The masks, and the real images where there are any."""
    rows = []
    for index in chosen:
        mask, image = at_size(source.read(index), size)
        tiles = [("mask", np.repeat((mask > 0).astype(np.uint8)[..., None] * 255, 3, axis=2))]
        if image is not None:
            tiles.append(("real image", image))
        rows.append(Row(source.names[index], tiles))
    return rows


def draw(model: Model, recipe: Recipe, source: Source, chosen: Sequence[int], device: torch.device) -> list[Picture]:
    """What the model draws for these masks: the images that `synth sample` makes, since the noise is theirs."""
    size = model.card["size"]
    read = [at_size(source.read(index), size)[0] for index in chosen]
    jobs = jobs_of(list(source.names), list(source.groups), count=1, augment=False)
    prompts = Prompts.of(model.card, None, highest=max(int(mask.max()) for mask in read))
    engine = Engine(Backbone.load(model.path, device), recipe, batch=len(read))
    shown = torch.stack([torch.from_numpy(mask > 0) for mask in read])[:, None].float()
    generators = [jobs[index].generator(recipe.seed) for index in chosen]
    images = engine.draw(shown, [prompts(mask) for mask in read], generators).numpy()
    return [np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image for image in images]


def add(rows: Sequence[Row], drawn: Sequence[Picture], source: Source, chosen: Sequence[int], name: str) -> None:
    """A model's images to the right of what is there, without and with the mask's outline."""
    for row, picture, index in zip(rows, drawn, chosen, strict=True):
        mask, _ = at_size(source.read(index), picture.shape[0])
        row.tiles.extend([(name, picture), (f"{name}, with the mask", contour(picture, mask > 0))])


def as_picture(rows: Sequence[Row]) -> Picture:
    """All rows as one picture, tiles at the size of the first."""
    side = rows[0].tiles[0][1].shape[0]
    lines = [np.concatenate([_padded(tile, side) for _, tile in row.tiles], axis=1) for row in rows]
    return np.concatenate(lines)


def _padded(tile: Picture, side: int) -> Picture:
    if tile.shape[0] != side:
        tile = np.asarray(Image.fromarray(tile).resize((side, side), Image.Resampling.BILINEAR))
    return np.pad(tile, ((2, 2), (2, 2), (0, 0)), constant_values=255)
