"""LAW on volumes: MONAI's diffusion UNet with MONAI's ControlNet, in three dimensions, two lesion classes.

python examples/monai_3d.py --steps 3
"""

from __future__ import annotations

import argparse

import torch
from monai.networks.nets import ControlNet, DiffusionModelUNet
from monai.networks.schedulers import DDPMScheduler

from laworder import LAW


def two_classes() -> torch.Tensor:
    """Organ lesions of two kinds, one channel each, at the images' resolution (four times the latents')."""
    mask = torch.zeros(2, 2, 32, 32, 32)
    mask[:, 0, 4:16, 4:16, 4:16] = 1
    mask[0, 1, 20:24, 20:24, 20:24] = 1
    return mask


def main() -> None:
    parser = argparse.ArgumentParser(description="LAW in 3-D with MONAI.")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    tiny = {
        "spatial_dims": 3,
        "in_channels": 4,
        "channels": (8, 16),
        "attention_levels": (False, True),
        "num_res_blocks": 1,
        "num_head_channels": 8,
        "norm_num_groups": 8,
    }
    unet = DiffusionModelUNet(out_channels=4, **tiny)
    control = ControlNet(conditioning_embedding_in_channels=2, conditioning_embedding_num_channels=(8, 8, 8), **tiny)
    scheduler = DDPMScheduler(num_train_timesteps=1000)

    law = LAW(channels=4, spatial_dims=3, classes=2, resize="any")  # once; "any" keeps lesions of one voxel
    groups = [{"params": [*unet.parameters(), *control.parameters()]}, *law.parameter_groups(lr=1e-3)]
    optimiser = torch.optim.AdamW(groups, lr=1e-4)

    for step in range(args.steps):
        latents, mask = torch.randn(2, 4, 8, 8, 8), two_classes()
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (2,))
        noisy = scheduler.add_noise(original_samples=latents, noise=noise, timesteps=t)
        down, mid = control(x=noisy, timesteps=t, controlnet_cond=mask)
        pred = unet(x=noisy, timesteps=t, down_block_additional_residuals=down, mid_block_additional_residual=mid)

        loss = law(pred, noise, mask)  # in place of mse_loss(pred, noise)
        loss.total.backward()

        optimiser.step()
        optimiser.zero_grad()
        stats = {name: round(loss.stats[name].item(), 3) for name in ("w_mean", "w_max", "saturated", "vanished")}
        print(f"step {step}: loss {loss.total.item():.4f} {stats}")


if __name__ == "__main__":
    main()
