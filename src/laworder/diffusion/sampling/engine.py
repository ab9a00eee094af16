"""A backbone made ready to draw many images fast. The pictures stay those of the plain sampler, to rounding.

- What the ControlNet makes of a mask before it meets the latents does not depend on the step: it is computed once an
  image, not once a step and branch.
- Prompts are embedded once a run.
- On CUDA the networks run in channels-last layout with cuDNN's fastest convolutions.
- `compile` hands ControlNet and UNet as one to torch.compile: "default"; "graphs" also records CUDA graphs, which pay
  off where batches are small; "tuned" tries kernels against each other first, which takes minutes.
- Without guidance (1), or where guidance would drop an empty prompt, there is no second branch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from laworder.diffusion.backbone import Backbone
from laworder.diffusion.ddim import sample_images, step_settings
from laworder.diffusion.sampling.settings import Recipe
from laworder.diffusion.schedules import sampler
from laworder.errors import UserError
from laworder.runs.memory import keep_freed_memory

_MODES = {"default": "default", "graphs": "reduce-overhead", "tuned": "max-autotune-no-cudagraphs"}


class Engine:
    """Masks and prompts → pictures. It takes the backbone over: its networks change type and layout.

    recipe:  how an image comes about
    batch:   images that are drawn at once; fewer are filled up, so that the networks see one shape
    compile: "no", "default", "graphs" or "tuned"
    """

    def __init__(self, backbone: Backbone, recipe: Recipe, *, batch: int, compile: str = "no") -> None:  # noqa: A002
        if backbone.controlnet is None:
            raise UserError("this model was trained without masks (stage prior): it draws no image for a mask")
        step_settings(sampler(recipe.scheduler, backbone.scheduler), recipe.eta, None)  # what is wrong is said now
        keep_freed_memory()
        self.backbone, self.recipe, self.batch = backbone, recipe, batch
        self.cuda = backbone.device.type == "cuda"
        self.type = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
        parts: tuple[Any, ...] = (backbone.unet, backbone.controlnet, backbone.autoencoder)
        for part in parts:
            # nn.Module's own `to`: that of diffusers warns of modules to keep in fp32, of which there are none here.
            nn.Module.to(part, dtype=self.type)
            if self.cuda:
                part.to(memory_format=torch.channels_last)
        self._control, self._embed_mask = _split(backbone.controlnet)
        self._texts: dict[str, Tensor] = {}
        self._graphs = compile == "graphs" and self.cuda
        self._network: Callable[..., Tensor] = self._denoise
        if compile != "no":
            self._network = torch.compile(self._denoise, mode=_MODES[compile], dynamic=False)

    @torch.no_grad()
    def draw(
        self, masks: Float[Tensor, "b 1 size size"], prompts: Sequence[str], generators: Sequence[torch.Generator]
    ) -> UInt8[Tensor, "b size size c"]:
        """One picture a mask, on the CPU. masks: 0 or 1; generators: one an image, fresh, on the CPU."""
        count, lacking = len(masks), max(0, self.batch - len(masks))
        # Where the free branch would do without a prompt that is empty anyway, both branches are one and the same.
        alike = self.recipe.drops == "prompt" and not any(prompts)
        rows = [*range(count), *[count - 1] * lacking]
        # A copy for the filling: the last image's own generator must not be drawn from twice.
        drawn = [*generators, *(torch.Generator().manual_seed(0) for _ in range(lacking))]
        text = torch.cat([self._text(prompts[row]) for row in rows])
        with torch.backends.cudnn.flags(benchmark=True) if self.cuda else nullcontext():
            images = sample_images(
                self.backbone,
                self._seen(masks[rows]),
                text,
                generators=drawn,
                steps=self.recipe.steps,
                guidance=1.0 if alike else self.recipe.guidance,
                eta=self.recipe.eta,
                scheduler_name=self.recipe.scheduler,
                drops=self.recipe.drops,
                empty=self._text(""),
                scale=self.recipe.scale,
                denoise=self._step,
            )
        return to_bytes(images[:count])

    def _text(self, prompt: str) -> Float[Tensor, "1 tokens width"]:
        if prompt not in self._texts:
            self._texts[prompt] = self.backbone.embed([prompt]).to(self.type)
        return self._texts[prompt]

    def _seen(self, masks: Float[Tensor, "b 1 size size"]) -> Float[Tensor, "b d h w"]:
        """The masks as the ControlNet adds them to the latents."""
        channels = int(self._control.config.conditioning_channels)
        wide = masks.to(self.backbone.device, self.type).expand(-1, channels, -1, -1)
        return self._embed_mask(wide)

    def _step(self, latents: Tensor, t: Tensor, text: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
        given = latents.to(self.type)
        if self.cuda:
            given = given.contiguous(memory_format=torch.channels_last)
        if not self._graphs:
            return self._network(given, t, text, mask, scale).float()
        torch.compiler.cudagraph_mark_step_begin()
        return self._network(given, t, text, mask, scale).float().clone()  # the next replay writes over its output

    def _denoise(self, latents: Tensor, t: Tensor, text: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        return self.backbone.denoise(latents, t, text, mask, scale=scale, controlnet=self._control)


def _split(controlnet: nn.Module) -> tuple[Any, Any]:
    """The ControlNet without the network that reads its mask (weights are shared, nothing is changed), and that one."""
    rest: Any = copy.copy(controlnet)
    rest._modules = dict(controlnet._modules)
    rest.controlnet_cond_embedding = nn.Identity()
    return rest, controlnet.controlnet_cond_embedding


def to_bytes(images: Float[Tensor, "b c h w"]) -> UInt8[Tensor, "b h w c"]:
    """[−1, 1] → 0 … 255, as pictures are stored."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu()
