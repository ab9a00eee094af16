"""LAW with a flow-matching transformer (Stable Diffusion 3's) and its ControlNet.

    python examples/diffusers_flow.py --steps 3

The path is z = (1 − t)x₀ + tε and the network predicts the velocity u = ε − x₀; LAW needs to know neither. Networks
are tiny with random weights: load yours with `from_pretrained` instead. (A transformer that packs its latents into a
sequence, such as Flux, must have prediction and target unpacked to B×C×h×w first.)
"""

from __future__ import annotations

import argparse

import torch
from diffusers import SD3ControlNetModel, SD3Transformer2DModel

from laworder import LAW
from laworder.law import snr_of_flow, timestep_weight


def main() -> None:
    parser = argparse.ArgumentParser(description="LAW with a flow-matching transformer.")
    parser.add_argument("--weighting", choices=("none", "min_snr", "p2"), default="none")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=32,
        pos_embed_max_size=16,
    )
    controlnet = SD3ControlNetModel.from_transformer(transformer, num_layers=1, num_extra_conditioning_channels=0)
    transformer.requires_grad_(False)

    law = LAW(channels=16)  # once
    groups = [{"params": controlnet.parameters()}, *law.parameter_groups(lr=1e-4)]
    optimiser = torch.optim.AdamW(groups, lr=1e-5)

    for step in range(args.steps):
        latents, noise = torch.randn(2, 2, 16, 16, 16).unbind(0)
        mask = torch.zeros(2, 1, 128, 128)
        mask[:, :, 32:64, 48:96] = 1
        t = torch.sigmoid(torch.randn(2))  # logit-normal, as SD3 is trained
        noisy = (1 - t.view(-1, 1, 1, 1)) * latents + t.view(-1, 1, 1, 1) * noise
        text = {"encoder_hidden_states": torch.randn(2, 5, 32), "pooled_projections": torch.randn(2, 32)}
        # SD3's ControlNet takes its condition encoded by the VAE; here, the mask at the latents' size stands for it.
        condition = torch.nn.functional.interpolate(mask, size=(16, 16)).expand(-1, 16, -1, -1)
        residuals = controlnet(
            hidden_states=noisy, timestep=1000 * t, controlnet_cond=condition, return_dict=False, **text
        )[0]
        pred = transformer(
            hidden_states=noisy, timestep=1000 * t, block_controlnet_hidden_states=residuals, return_dict=False, **text
        )[0]
        target = noise - latents

        # In place of ((pred - target) ** 2).mean()
        weight = timestep_weight(args.weighting, snr_of_flow(t), prediction="flow_prediction")
        loss = law(pred, target, mask, timestep_weight=weight)
        loss.total.backward()

        optimiser.step()
        optimiser.zero_grad()
        print(f"step {step}: loss {loss.total.item():.4f} mean weight {loss.stats['w_mean'].item():.3f}")


if __name__ == "__main__":
    main()
