"""Pairs as training sees them: latents encoded once, masks, and which prompt is whose.

After that neither autoencoder nor text encoder is needed until images are looked at, and both leave the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor, nn

from laworder.data.cache import GB
from laworder.data.load import Arrays
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.settings import TrainConfig
from laworder.errors import UserError
from laworder.law.masks import latent_mask, vanished
from laworder.runs import Batches, batch_indices
from laworder.runs.batches import Positions

VARIANTS = {"none": 1, "h": 2, "hv": 4}
"""How many mirror images each setting has; bit 0 is left-right, bit 1 up-down."""
_CHUNK = 32


def mirrored(x: Shaped[Tensor, "b c h w"], variant: Int[Tensor, " b"]) -> Shaped[Tensor, "b c h w"]:
    """Each picture as its variant says."""
    for bit, axis in ((1, -1), (2, -2)):
        chosen = (variant & bit).bool()[:, None, None, None]
        x = torch.where(chosen, x.flip(axis), x)
    return x


@contextmanager
def present(module: nn.Module, device: torch.device) -> Iterator[None]:
    """On the device while this lasts, then back on the CPU."""
    module.to(device)
    try:
        yield
    finally:
        module.to("cpu")


@dataclass
class Store:
    """A set ready for training.

    latents: of every pair and mirror image, as the UNet sees them
    masks:   lesion of any class, 0 or 1, at the images' size, not mirrored
    prompts: rows of the table of embeddings
    images:  where a teacher wants them
    """

    latents: Float[Tensor, "v n z h w"]
    masks: UInt8[Tensor, "n 1 size size"]
    prompts: Int[Tensor, " n"]
    names: list[str]
    images: UInt8[Tensor, "n c size size"] | None = None

    def keep_on(self, device: torch.device, limit_gb: float) -> None:
        """Move all of it to the device, unless it is larger than the limit."""
        held = [self.latents, self.masks] + ([] if self.images is None else [self.images])
        if sum(t.nbytes for t in held) > limit_gb * GB:
            return
        self.latents, self.masks, self.prompts = (t.to(device) for t in (self.latents, self.masks, self.prompts))
        self.images = None if self.images is None else self.images.to(device)


@torch.no_grad()
def measure_latents(backbone: Backbone, pairs: Arrays, device: torch.device) -> None:
    """Set the backbone's mean and std per channel, so that what the UNet sees has mean 0 and deviation 1."""
    total = squares = torch.zeros(1, dtype=torch.float64)
    cells = 0
    for images in pairs.images.split(_CHUNK):
        raw = backbone.autoencoder.encode(as_signed(images).to(device)).double().cpu()
        total = total + raw.sum(dim=(0, 2, 3))
        squares = squares + raw.square().sum(dim=(0, 2, 3))
        cells += raw.shape[0] * raw.shape[2] * raw.shape[3]
    mean = total / cells
    std = (squares / cells - mean.square()).clamp(min=1e-12).sqrt()
    if not bool(torch.isfinite(mean).all() & torch.isfinite(std).all()):
        return  # `encode_all` says on which images
    backbone.mean = mean.float().reshape(1, -1, 1, 1)
    backbone.std = std.float().reshape(1, -1, 1, 1)


@torch.no_grad()
def encode_all(backbone: Backbone, pairs: Arrays, device: torch.device, *, flips: str) -> Float[Tensor, "v n z h w"]:
    """Every image's latents, and those of its mirror images; UserError names images without finite ones."""
    found: list[Tensor] = []
    for variant in range(VARIANTS[flips]):
        for images in pairs.images.split(_CHUNK):
            which = torch.full((len(images),), variant)
            found.append(backbone.encode(mirrored(as_signed(images), which).to(device)).cpu())
    latents = torch.cat(found).unflatten(0, (VARIANTS[flips], -1))
    good = torch.isfinite(latents).flatten(2).all(dim=2).all(dim=0)
    if not bool(good.all()):
        bad = [pairs.names[i] for i in torch.nonzero(~good).flatten().tolist()]
        raise UserError(
            f"the autoencoder gives latents that are no numbers (NaN) for {len(bad)} of {len(pairs.names)} images, "
            f"first {bad[0]!r}: look at that image, or use another autoencoder"
        )
    return latents


def as_signed(images: UInt8[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """0 … 255 → −1 … 1."""
    return images.float() / 127.5 - 1


def prompt_rows(masks: UInt8[Tensor, "n 1 h w"], config: TrainConfig, prompts: Sequence[str]) -> Int[Tensor, " n"]:
    """Which prompt each pair has: the data set's, or that of the mask's largest lesion class."""
    if not config.class_prompts:
        return torch.full((len(masks),), prompts.index(config.prompt))
    highest = int(masks.max())
    if highest > len(config.class_prompts):
        raise UserError(
            f"class_prompts: {len(config.class_prompts)} given, but the masks hold lesion class {highest}; "
            "give one prompt for each class, in their order"
        )
    rows = [prompts.index(config.prompt), *(prompts.index(p) for p in config.class_prompts)]
    sizes = torch.stack([(masks == k).flatten(1).sum(1) for k in range(1, len(rows))], dim=1)
    largest = torch.where(sizes.amax(1) > 0, sizes.argmax(1) + 1, 0)
    return torch.tensor(rows)[largest]


def check_masks(pairs: Arrays, *, what: str) -> None:
    """Refuse masks that show the background in place of the lesion, or no lesion at all."""
    lesion = pairs.masks[:, 0] > 0
    if not bool(lesion.any()):
        raise UserError(f"{what}: no mask has a lesion; check that masks are 0 for background and above for lesions")
    frame = torch.cat([lesion[:, 0], lesion[:, -1], lesion[:, :, 0], lesion[:, :, -1]], dim=1).float().mean(1)
    share = lesion.flatten(1).float().mean(1)
    inverted = (frame > 0.5) & (share > 0.5)
    if int(inverted.sum()) * 2 > len(inverted):
        raise UserError(
            f"{what}: the masks look inverted: in {int(inverted.sum())} of {len(inverted)} of them the lesion covers "
            f"the picture's frame (first {pairs.names[int(inverted.nonzero()[0])]!r}); lesions must be white on black"
        )


def choose_resize(masks: UInt8[Tensor, "n 1 h w"], side: int, wanted: str) -> tuple[str, float]:
    """How masks reach the latents' grid, and the share of lesion masks that nearest would lose there altogether."""
    lost = 0
    lesions = int((masks.flatten(1).amax(1) > 0).sum())
    for chunk in masks.split(_CHUNK):
        full = (chunk > 0).float()
        lost += int(vanished(full, latent_mask(full, (side, side))).sum())
    share = lost / max(1, lesions)
    return ("any" if lost else "nearest") if wanted == "auto" else wanted, share


@dataclass(frozen=True, kw_only=True)
class PositionBatches(Batches):
    """Batches of positions in a store, in `Batches`' order: the store gathers them itself."""

    def iterate(self, first: int, last: int, *, seed: int, rank: int = 0, world: int = 1) -> Iterator[Any]:
        whose = {"batch_size": self.batch_size, "n": len(self.dataset), "rank": rank, "world": world}  # type: ignore[arg-type]
        return (torch.from_numpy(batch_indices(seed, number, **whose)) for number in range(first, last))


def position_batches(count: int, batch_size: int) -> PositionBatches:
    """How `count` pairs are cut into batches of one process."""
    return PositionBatches(dataset=Positions(count), batch_size=batch_size)
