"""From masks to images: the sampling loop, over any of diffusers' schedulers.

Guidance: prediction = u + g · (c − u), where c sees mask and prompt. The unconditional branch u keeps the mask and
drops the prompt, as the paper has it (`drops="prompt"`); for backbones whose prompt says little, it may instead drop
the mask (`drops="mask"`), so that guidance strengthens the mask itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.schedules import sampler
from laworder.errors import UserError
from laworder.law import sampling

Drops = Literal["prompt", "mask"]
Denoise = Callable[..., Tensor]
"""What `Backbone.denoise` is: (latents, t, text, mask, *, scale) → prediction."""


def starting_noise(backbone: Backbone, generators: Sequence[torch.Generator]) -> Float[Tensor, "b z side side"]:
    """One draw a generator, on the CPU, so that an image's noise depends on neither batch nor device."""
    shape = (1, backbone.latent_channels, backbone.side, backbone.side)
    return torch.cat([torch.randn(shape, generator=generator) for generator in generators])


@torch.no_grad()
def sample_images(
    backbone: Backbone,
    masks: Float[Tensor, "b 1 size size"] | None,
    text: Float[Tensor, "b tokens width"],
    *,
    noise: Float[Tensor, "b z side side"] | None = None,
    generators: Sequence[torch.Generator] | None = None,
    steps: int = 50,
    guidance: float = 10.0,
    eta: float = 0.0,
    scheduler_name: str = "ddim",
    drops: Drops = "prompt",
    empty: Float[Tensor, "1 tokens width"] | None = None,
    scale: float = 1.0,
    denoise: Denoise | None = None,
) -> Float[Tensor, "b c size size"]:
    """Images in [−1, 1], on the backbone's device.

    masks:      in [0, 1] at the backbone's size; None samples the image prior
    noise:      where sampling starts (`starting_noise`); drawn from `generators` where None
    generators: one an image, on the CPU; also for the noise that η > 0 or an ancestral scheduler adds
    guidance:   1 costs half, and has no unconditional branch
    empty:      embedding of the empty prompt, where it is at hand
    scale:      of the ControlNet's residuals
    denoise:    takes the place of `backbone.denoise` (a compiled one), and gets `masks` as they are given here
    """
    if noise is None:
        assert generators is not None, "give the noise or the generators"
        noise = starting_noise(backbone, generators)
    scheduler = sampler(scheduler_name, backbone.scheduler)
    # Its own numbers stay on the CPU, or every step would wait for the device to say how far it is.
    scheduler.set_timesteps(steps)
    device = backbone.device
    extra = step_settings(scheduler, eta, generators)
    latents = noise.to(device) * scheduler.init_noise_sigma
    text, masks = text.to(device), None if masks is None else masks.to(device)
    blank = None
    if guidance != 1.0 and drops == "prompt":
        blank = (backbone.embed([""]) if empty is None else empty).to(text)
    predict = _guided(denoise or backbone.denoise, text, blank, masks, guidance, scale)
    with sampling():
        for t, moment in zip(scheduler.timesteps, scheduler.timesteps.to(device), strict=True):
            prediction = predict(scheduler.scale_model_input(latents, t), moment)
            latents = scheduler.step(prediction.float(), t, latents, **extra, return_dict=False)[0]
    if not torch.isfinite(latents).all():
        raise UserError("sampling gave latents that are no numbers (NaN): try precision fp32, or less guidance")
    return backbone.decode(latents)


def _guided(
    denoise: Denoise, text: Tensor, blank: Tensor | None, masks: Tensor | None, guidance: float, scale: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """(latents, t) → the guided prediction; what does not change from step to step is put together once."""
    if guidance == 1.0:
        return lambda latents, t: denoise(latents, t, text, masks, scale=scale)
    if blank is None:  # the free branch does without the mask

        def without_mask(latents: Tensor, t: Tensor) -> Tensor:
            free = denoise(latents, t, text, None, scale=scale)
            return free + guidance * (denoise(latents, t, text, masks, scale=scale) - free)

        return without_mask
    both = torch.cat([blank.expand_as(text), text])
    twice = None if masks is None else torch.cat([masks, masks])

    def without_prompt(latents: Tensor, t: Tensor) -> Tensor:
        free, bound = denoise(torch.cat([latents, latents]), t, both, twice, scale=scale).chunk(2)
        return free + guidance * (bound - free)

    return without_prompt


def step_settings(scheduler: Any, eta: float, generators: Sequence[torch.Generator] | None) -> dict[str, Any]:
    """What this scheduler's step takes: η, and generators where it adds noise. UserError where it knows no η."""
    taken = inspect.signature(scheduler.step).parameters
    extra: dict[str, Any] = {}
    if "eta" in taken:
        extra["eta"] = eta
    elif eta:
        raise UserError(f"eta is {eta}, but {type(scheduler).__name__} has no such setting: use the scheduler ddim")
    if "generator" in taken and generators is not None:
        extra["generator"] = list(generators)
    return extra
