"""LAW in a plain PyTorch loop: any denoiser, no diffusion library.

    python examples/plain_pytorch.py --steps 30 --strip delta.png

The three lines are marked. Everything else is a toy: random "images" whose lesion is a brighter square, and a denoiser
of three convolutions that sees the noisy image and the mask.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from laworder import LAW
from laworder.law import snr_of_schedule, strip, timestep_weight


def toy_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Four 4×16×16 "latents" and their 4×1×128×128 masks."""
    mask = torch.zeros(4, 1, 128, 128)
    for one in mask:
        row, col = torch.randint(8, 88, (2,), generator=generator).tolist()
        one[:, row : row + 32, col : col + 32] = 1
    small = nn.functional.interpolate(mask, size=(16, 16), mode="nearest-exact")
    return torch.randn(4, 4, 16, 16, generator=generator) * 0.3 + small, mask


def main() -> None:
    parser = argparse.ArgumentParser(description="LAW in a plain PyTorch loop.")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--strip", type=Path, help="write masks and δ maps of the last step to this PNG")
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)
    denoiser = nn.Sequential(
        nn.Conv2d(5, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 4, 1)
    )

    law = LAW(channels=4)  # 1. once
    optimiser = torch.optim.AdamW([{"params": denoiser.parameters()}, *law.parameter_groups(lr=1e-2)], lr=1e-3)

    for step in range(args.steps):
        latents, mask = toy_batch(generator)
        noise = torch.randn(latents.shape, generator=generator)
        t = torch.randint(0, 1000, (4,), generator=generator)
        a = alphas_cumprod[t].view(-1, 1, 1, 1)
        noisy = a.sqrt() * latents + (1 - a).sqrt() * noise
        small = nn.functional.interpolate(mask, size=(16, 16), mode="nearest-exact")
        pred = denoiser(torch.cat([noisy, small], dim=1))

        # 2. in place of mse_loss(pred, noise); the mask comes at any resolution, the timestep's weight is optional
        weight = timestep_weight("min_snr", snr_of_schedule(alphas_cumprod, t), prediction="epsilon")
        loss = law(pred, noise, mask, timestep_weight=weight)
        loss.total.backward()  # 3. as before

        optimiser.step()
        optimiser.zero_grad()
        stats = {name: round(loss.stats[name].item(), 3) for name in ("w_mean", "saturated", "delta_mask_correlation")}
        print(f"step {step}: loss {loss.total.item():.4f} {stats}")
        if args.strip and step == args.steps - 1 and loss.delta is not None:
            Image.fromarray(strip(mask[:, :, 4::8, 4::8], loss.delta, zoom=8).numpy()).save(args.strip)


if __name__ == "__main__":
    main()
