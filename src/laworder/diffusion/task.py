"""One denoiser in training: what is drawn for an update, and the loss of what was drawn.

Everything random in update k (noise, timestep, dropped prompt, mirror image) is drawn for the whole batch from
(seed, k), and each process and each part takes the rows of its own images: the same batch looks the same however it is
shared out.

With z₀ the latents, t the timestep, ᾱ the schedule and ε the noise: z_t = √ᾱ_t z₀ + √(1 − ᾱ_t) ε (eq. 1). What the
UNet is to predict is ε, v = √ᾱ_t ε − √(1 − ᾱ_t) z₀, or z₀.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laworder.diffusion.averages import AveragedTask
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.control import shown_to_teacher, teacher_of
from laworder.diffusion.latents import Store, as_signed, mirrored
from laworder.diffusion.learners import build_optimiser, choose_learners
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.sharding import shard
from laworder.law import Loss, Objective, Uniform, objective, snr_of_schedule, timestep_weight
from laworder.runs import generator
from laworder.runs.distributed import Place


class Drawn(NamedTuple):
    """One process's part of an update: all that its loss is a function of, besides the weights."""

    latents: Float[Tensor, "b z h w"]
    noise: Float[Tensor, "b z h w"]
    t: Int[Tensor, " b"]
    text: Float[Tensor, "b tokens width"]
    masks: Float[Tensor, "b 1 size size"]
    images: Float[Tensor, "b c size size"] | None


def build_objective(config: TrainConfig, channels: int, resize: str) -> Objective:
    """The chosen weighting; the image prior is always learnt with the plain loss. Its φ follows from the seed."""
    if config.stage == "prior":
        return Uniform(channels=channels, resize=resize)
    with torch.random.fork_rng():
        torch.manual_seed(generator(config.seed, stream="objective").initial_seed())
        return objective(config.objective, channels=channels, resize=resize, **config.law.given())


class DiffuseTask(AveragedTask):
    """The UNet, its ControlNet and the objective of one run.

    table: embedding of every prompt, the empty one first
    """

    def __init__(
        self,
        backbone: Backbone,
        config: TrainConfig,
        device: torch.device,
        *,
        store: Store,
        table: Float[Tensor, "p tokens width"],
        resize: str,
        place: Place,
    ) -> None:
        self.config, self.backbone, self.store, self.table = config, backbone, store, table.to(device)
        self.sharded = config.network.shard
        self.objective = build_objective(config, backbone.latent_channels, resize).to(device)
        chosen = choose_learners(backbone, config)
        self.teacher: Any = self._teacher()
        self._place_networks(device, place)
        weights = {name: backbone.get_parameter(name) for name in chosen}  # anew, since shards are new objects
        taught = [] if self.teacher is None else list(self.teacher.parameters())
        rule = build_optimiser(
            [*weights.values(), *taught],
            self.objective,
            config.optimiser,
            law_lr=config.law.lr,
            cuda=device.type == "cuda",
        )
        super().__init__(
            weights,
            rule,
            modules={"objective": self.objective, **({} if self.teacher is None else {"teacher": self.teacher})},
            learning=[*taught, *self.objective.parameters()],
            decay=config.optimiser.ema,
            place=place,
            device=device,
            pair_names=store.names,
        )
        self._prepare_networks()

    def _teacher(self) -> Any:
        if not self.objective.needs_teacher:
            return None
        with torch.random.fork_rng():
            torch.manual_seed(generator(self.config.seed, stream="teacher").initial_seed())
            made = teacher_of(self.backbone.controlnet, self.backbone.image_channels)
        return made.requires_grad_(True)

    def _networks(self) -> list[Any]:
        return [part for part in (self.backbone.unet, self.backbone.controlnet, self.teacher) if part is not None]

    def _place_networks(self, device: torch.device, place: Place) -> None:
        if self.sharded:
            shard(self._networks(), device, place, precision=self.config.precision)
        for part in self._networks():
            part.to(device)

    def _prepare_networks(self) -> None:
        network = self.config.network
        for part in self._networks():
            part.train()
            if network.gradient_checkpointing:
                part.enable_gradient_checkpointing()
            if network.compile:
                part.compile()

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        loss = self.loss(self.draw(batch, step, micro))
        return loss.total, {name: value.detach() for name, value in {**loss.parts, **loss.stats}.items()}

    def draw(self, positions: Int[Tensor, " b"], step: int, micro: int) -> Drawn:
        """What update `step` needs of the pairs at these positions, in part `micro` of it."""
        config, store, count = self.config, self.store, len(positions)
        mine, whole = self.rows(count, micro), config.batch
        source = generator(config.seed, step=step, stream="diffuse", device=self.device)
        where = {"generator": source, "device": self.device}
        timesteps = self.backbone.scheduler.config.num_train_timesteps
        t = torch.randint(timesteps, (whole,), **where)[mine]
        variant = torch.randint(len(store.latents), (whole,), **where)[mine]
        dropped = (torch.rand(whole, **where) < config.prompt_drop)[mine]
        noise = torch.randn(whole, *store.latents.shape[2:], **where)[mine]
        rows = positions.to(store.masks.device)
        latents = store.latents[variant.to(rows.device), rows].to(self.device)
        masks = (store.masks[rows].to(self.device) > 0).float()
        prompt = torch.where(dropped, 0, store.prompts[rows.to(store.prompts.device)].to(self.device))
        images = None
        if self.teacher is not None:
            assert store.images is not None
            images = mirrored(as_signed(store.images[rows].to(self.device)), variant)
        return Drawn(latents, noise, t, self.table[prompt], mirrored(masks, variant), images)

    def loss(self, drawn: Drawn) -> Loss:
        """A function of tensors alone, so that it can be captured."""
        scheduler, kind = self.backbone.scheduler, self.backbone.prediction
        noisy = scheduler.add_noise(drawn.latents, drawn.noise, drawn.t)
        if kind == "epsilon":
            target = drawn.noise
        elif kind == "sample":
            target = drawn.latents
        else:
            target = scheduler.get_velocity(drawn.latents, drawn.noise, drawn.t)
        shown = drawn.masks if self.config.stage == "control" else None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            pred = self.backbone.denoise(noisy, drawn.t, drawn.text, shown)
            taught = None
            if self.teacher is not None:
                assert drawn.images is not None
                control = shown_to_teacher(self.teacher, drawn.masks, drawn.images)
                taught = self.backbone.denoise(noisy, drawn.t, drawn.text, control, controlnet=self.teacher)
        total = scheduler.config.num_train_timesteps
        return self.objective(
            pred.float(),
            target,
            drawn.masks,
            teacher=None if taught is None else taught.float(),
            timestep_weight=self._timestep_weight(drawn.t),
            time=drawn.t.float() / total,
        )

    def _timestep_weight(self, t: Int[Tensor, " b"]) -> Float[Tensor, " b"] | None:
        noise = self.config.noise
        if noise.weighting == "none":
            return None
        snr = snr_of_schedule(self.backbone.scheduler.alphas_cumprod, t)
        more = {"gamma": noise.snr_gamma} if noise.weighting == "min_snr" else {}
        return timestep_weight(noise.weighting, snr, prediction=self.backbone.prediction, **more)
