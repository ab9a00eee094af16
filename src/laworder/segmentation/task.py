"""One segmenter in training: batches by index from arrays on the device, augmented there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from pytorch_optimizer import AdEMAMix
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from laworder.data.augment import Augment
from laworder.data.load import Arrays
from laworder.order.base import Segmenter
from laworder.runs import Task, generator
from laworder.segmentation.losses import segmentation_loss
from laworder.segmentation.settings import Optimiser, TrainConfig
from laworder.segmenters.losses import DeeplySupervised

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, per channel; gray images take the mean over channels."""


def normalise(images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Images in [0, 1] to zero mean and unit deviation by the statistics of ImageNet."""
    mean, std = images.new_tensor(MEAN), images.new_tensor(STD)
    if images.shape[1] == 1:
        mean, std = mean.mean().reshape(1), std.mean().reshape(1)
    return (images - mean[:, None, None]) / std[:, None, None]


def build_optimiser(model: nn.Module, settings: Optimiser) -> Optimizer:
    """AdEMAMix (Pagliardini et al. 2024) with decoupled decay, or AdamW."""
    if settings.name == "adamw":
        return AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    return AdEMAMix(
        model.parameters(),
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        weight_decouple=True,
        alpha=settings.alpha,
    )


class SegmentTask(Task):
    """Loss and bookkeeping of one run. A batch is a tensor of positions in `train`."""

    def __init__(self, model: Segmenter, train: Arrays, config: TrainConfig, device: torch.device) -> None:
        self.model = model.to(device)
        self.ema: AveragedModel | None = None
        modules: dict[str, nn.Module] = {"model": self.model}
        if config.optimiser.ema > 0:
            average = get_ema_multi_avg_fn(config.optimiser.ema)
            self.ema = AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)
            modules["ema"] = self.ema
        super().__init__(modules=modules, optimizers={"optimiser": build_optimiser(self.model, config.optimiser)})
        self.train, self.seed, self.device = train, config.seed, device
        self.images, self.masks = train.images.to(device), train.masks.to(device)
        self.augment = Augment(**{name: getattr(config.augment, name) for name in Augment.__dataclass_fields__})
        self.precision = config.precision
        self.forward = torch.compile(self._parts) if config.compile else self._parts

    def micro_step(self, batch: Tensor, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        self.model.train()
        where = batch.to(self.device)
        draws = generator(self.seed, step=step, stream=f"augment/{micro}")
        images, masks = self.augment(self.images[where].float() / 255, self.masks[where], draws)
        parts = self.forward(normalise(images), masks)
        return torch.stack(list(parts.values())).sum(), {name: value.detach() for name, value in parts.items()}

    def _parts(self, images: Tensor, masks: Tensor) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            model = self.model
            deep = isinstance(model, DeeplySupervised)
            outputs = model.deep_logits(images) if deep else [model(images)]
        weights = model.deep_weights if deep else (1.0,)
        total: dict[str, Tensor] = {}
        for weight, logits in zip(weights, outputs, strict=True):
            for name, value in segmentation_loss(logits, masks).items():
                total[name] = total.get(name, 0.0) + weight * value
        return total

    def after_step(self, step: int) -> None:  # noqa: ARG002
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def names(self, batch: Any) -> list[str]:
        return [self.train.names[int(position)] for position in batch]

    @property
    def judged(self) -> Segmenter:
        """The weights that are validated and kept: the averaged ones where there are any."""
        kept = self.model if self.ema is None else self.ema.module
        assert isinstance(kept, Segmenter)
        return kept
