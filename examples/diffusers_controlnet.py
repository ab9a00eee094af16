"""LAW in diffusers' ControlNet training step, for Stable Diffusion 1.x (`sd`) and XL (`sdxl`).

    python examples/diffusers_controlnet.py --model sdxl --steps 3

The step is that of diffusers' train_controlnet.py and train_controlnet_sdxl.py; only the loss changes. Networks are
tiny with random weights, so that this runs anywhere in seconds: load yours with `from_pretrained` instead.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel
from torch import Tensor

from laworder import LAW
from laworder.law import snr_of_schedule, timestep_weight

TINY: dict[str, Any] = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
    "sample_size": 8,
}
EXTRA: dict[str, dict[str, Any]] = {
    "sd": {},
    # XL adds pooled text and sizes to the time embedding: 6 size numbers × 8 + 32 pooled features.
    "sdxl": {
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 6 * 8 + 32,
    },
}


def prompt(model: str) -> dict[str, Any]:
    """What the text encoders would give: embeddings, and XL's added conditions."""
    given: dict[str, Any] = {"encoder_hidden_states": torch.randn(2, 5, 32)}
    if model == "sdxl":
        sizes = torch.tensor([[64.0, 64.0, 0.0, 0.0, 64.0, 64.0]]).repeat(2, 1)
        given["added_cond_kwargs"] = {"text_embeds": torch.randn(2, 32), "time_ids": sizes}
    return given


def lesion_mask() -> Tensor:
    """Two 64×64 masks, as they go to the ControlNet (in three channels) and to LAW (in one)."""
    mask = torch.zeros(2, 1, 64, 64)
    mask[0, :, 16:32, 24:40] = 1
    mask[1, :, 40:56, 8:16] = 1
    return mask


def main() -> None:
    parser = argparse.ArgumentParser(description="LAW in diffusers' ControlNet training step.")
    parser.add_argument("--model", choices=sorted(EXTRA), default="sd")
    parser.add_argument("--prediction", choices=("epsilon", "v_prediction"), default="epsilon")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    unet = UNet2DConditionModel(**TINY, **EXTRA[args.model])
    controlnet = ControlNetModel.from_unet(unet)
    scheduler = DDPMScheduler(num_train_timesteps=1000, prediction_type=args.prediction)
    unet.requires_grad_(False)

    law = LAW(channels=unet.config.in_channels)  # once
    groups = [{"params": controlnet.parameters()}, *law.parameter_groups(lr=1e-4)]
    optimiser = torch.optim.AdamW(groups, lr=1e-5)

    for step in range(args.steps):
        latents, mask, text = torch.randn(2, 4, 8, 8), lesion_mask(), prompt(args.model)
        noise = torch.randn_like(latents)
        t = torch.randint(0, scheduler.config.num_train_timesteps, (2,))
        noisy = scheduler.add_noise(latents, noise, t)
        down, mid = controlnet(noisy, t, controlnet_cond=mask.expand(-1, 3, -1, -1), return_dict=False, **text)
        pred = unet(noisy, t, down_block_additional_residuals=down, mid_block_additional_residual=mid, **text).sample
        target = noise if args.prediction == "epsilon" else scheduler.get_velocity(latents, noise, t)

        # In place of F.mse_loss(pred.float(), target.float()); min-SNR in the form this prediction needs.
        snr = snr_of_schedule(scheduler.alphas_cumprod, t)
        weight = timestep_weight("min_snr", snr, prediction=args.prediction)
        loss = law(pred, target, mask, timestep_weight=weight)
        loss.total.backward()

        optimiser.step()
        optimiser.zero_grad()
        parts = {name: round(value.item(), 4) for name, value in loss.parts.items()}
        print(f"step {step}: loss {loss.total.item():.4f} {parts} mean weight {loss.stats['w_mean'].item():.3f}")


if __name__ == "__main__":
    main()
