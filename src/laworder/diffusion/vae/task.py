"""One autoencoder in training.

    L = Σ_s mean[ u ⊙ (|x_s − y_s| + λ_e |∇x_s − ∇y_s|) ] / S + λ_KL · KL(q(z|x) ‖ N(0, 1)) / cells

over S sizes, each half of the one before; u is 1, or more inside lesions. Differences between neighbours keep edges and
texture sharper than pixels alone, and need no pretrained network. Everything random in update k is drawn for the whole
batch from (seed, k), and each process and part takes the rows of its own images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from laworder.data.load import Arrays
from laworder.diffusion.averages import AveragedTask
from laworder.diffusion.latents import VARIANTS, as_signed, mirrored
from laworder.diffusion.vae.settings import VaeConfig
from laworder.runs import generator
from laworder.runs.distributed import Place


class Passed(NamedTuple):
    """Images through the autoencoder."""

    images: Float[Tensor, "b 3 h w"]
    kl: Float[Tensor, ""]


class AutoencodeTask(AveragedTask):
    """The autoencoder of one run."""

    def __init__(self, network: Any, config: VaeConfig, pairs: Arrays, device: torch.device, place: Place) -> None:
        self.config, self.pairs = config, pairs
        self.images, self.masks = pairs.images.to(device), pairs.masks.to(device)
        self.network: Any = network.to(device).train()
        self.is_tiny = config.network.kind == "tiny"  # encodes without a distribution
        rates = config.optimiser
        weights = dict(network.named_parameters())
        rule = AdamW(weights.values(), lr=rates.lr, weight_decay=rates.weight_decay, fused=device.type == "cuda")
        super().__init__(weights, rule, decay=rates.ema, place=place, device=device, pair_names=pairs.names)

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        config, whole, mine = self.config, self.config.batch, self.rows(len(batch), micro)
        source = generator(config.seed, step=step, stream="autoencode", device=self.device)
        variant = torch.randint(VARIANTS[config.flips], (whole,), generator=source, device=self.device)[mine]
        rows = batch.to(self.device)
        images = mirrored(as_signed(self.images[rows]), variant)
        weights = 1 + (config.loss.lesion - 1) * (mirrored(self.masks[rows], variant) > 0).float()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            made = self.passed(images, source, mine)
        pixels = reconstruction(
            made.images.float(), images, weights, scales=config.loss.scales, edges=config.loss.edges
        )
        total = pixels + config.loss.kl * made.kl
        return total, {"reconstruction": pixels.detach(), "kl": made.kl.detach()}

    def passed(self, images: Tensor, source: torch.Generator, mine: slice) -> Passed:
        """Through the latents, which are drawn from the encoder's distribution where it has one."""
        if self.is_tiny:
            return Passed(self.network.decode(self.network.encode(images).latents).sample, images.new_zeros(()))
        found = self.network.encode(images).latent_dist
        mean, std = found.mean.float(), found.std.float()
        noise = torch.randn(self.config.batch, *mean.shape[1:], generator=source, device=self.device)[mine]
        kl = 0.5 * (mean.square() + std.square() - 1 - 2 * std.log()).mean()
        return Passed(self.network.decode((mean + std * noise).to(images.dtype)).sample, kl)

    @torch.no_grad()
    def reconstruct(self, images: UInt8[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n 3 h w"]:
        """Through the mean latents, with the averaged weights, in fp32."""
        self.network.eval()
        with self.averaged():
            made = [self._through(part.to(self.device)).cpu() for part in images.split(self.config.batch)]
        self.network.train()
        return torch.cat(made)

    def _through(self, images: UInt8[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n 3 h w"]:
        code = self.network.encode(as_signed(images))
        made = self.network.decode(code.latents if self.is_tiny else code.latent_dist.mode()).sample
        return ((made + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def reconstruction(
    made: Float[Tensor, "b c h w"],
    real: Float[Tensor, "b c h w"],
    weights: Float[Tensor, "b 1 h w"],
    *,
    scales: int,
    edges: float,
) -> Float[Tensor, ""]:
    """The first term of L."""
    total = made.new_zeros(())
    for _ in range(scales):
        gap = made - real
        total = total + (weights * gap.abs()).mean()
        total = total + edges * (weights[..., 1:] * (gap[..., 1:] - gap[..., :-1]).abs()).mean()
        total = total + edges * (weights[..., 1:, :] * (gap[..., 1:, :] - gap[..., :-1, :]).abs()).mean()
        made, real, weights = (F.avg_pool2d(x, 2) for x in (made, real, weights))
    return total / scales


def psnr(
    made: UInt8[Tensor, "n 3 h w"],
    real: UInt8[Tensor, "n 3 h w"],
    where: Int[Tensor, "n 1 h w"] | UInt8[Tensor, "n 1 h w"],
) -> Float[Tensor, " n"]:
    """10 log₁₀(255² / MSE) over the pixels chosen by `where`; NaN for images that have none of them."""
    chosen = (where > 0).double()
    squares = (made.double() - real.double()).square().mean(dim=1, keepdim=True)
    error = (squares * chosen).flatten(1).sum(1) / chosen.flatten(1).sum(1)
    return 10 * torch.log10(255.0**2 / error.clamp(min=1e-3))
