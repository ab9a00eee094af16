"""One segmenter in training: batches augmented on the device, and the loss of all outputs that are supervised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from laworder.data.augment import Augment, Draw, apply
from laworder.data.cache import Batch
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.runs import Task, generator
from laworder.runs.distributed import Place, average_gradients
from laworder.segmentation.losses import segmentation_loss
from laworder.segmentation.optimiser import build_optimiser
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.synced_norm import synchronise_norms
from laworder.segmenters.losses import DeeplySupervised

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, per channel; gray images take the mean over channels."""


def normalise(images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Images in [0, 1] to zero mean and unit deviation by the statistics of ImageNet."""
    mean, std = images.new_tensor(MEAN), images.new_tensor(STD)
    if images.shape[1] == 1:
        mean, std = mean.mean().reshape(1), std.mean().reshape(1)
    return (images - mean[:, None, None]) / std[:, None, None]


class SegmentTask(Task):
    """Loss and bookkeeping of one run. A batch is what a feed gathers; `names` are those of the whole training set.

    The numbers that augment update k are drawn for the whole batch, from (seed, k); each process and each part takes
    those of its own images. The same batch therefore looks the same however it is shared out.
    """

    def __init__(
        self, model: Segmenter, config: TrainConfig, device: torch.device, *, names: list[str], place: Place
    ) -> None:
        self.model = model.to(device)
        if config.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if place.world > 1:
            synchronise_norms(self.model)
        modules: dict[str, nn.Module] = {"model": self.model}
        self.ema: AveragedModel | None = None
        if config.optimiser.ema > 0:
            average = get_ema_multi_avg_fn(config.optimiser.ema)
            self.ema = AveragedModel(self.model, multi_avg_fn=average, use_buffers=True)
            modules["ema"] = self.ema
        super().__init__(modules=modules, optimizers={"optimiser": build_optimiser(self.model, config.optimiser)})
        self.config, self.device, self.place, self._names = config, device, place, names
        self.augment = Augment(**{name: getattr(config.augment, name) for name in Augment.__dataclass_fields__})
        self.weights = class_weights(config, device)
        self.forward = torch.compile(self.parts) if config.compile else self.parts

    def micro_step(self, batch: Batch, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        self.model.train()
        images, masks = batch.images.to(self.device).float() / 255, batch.masks.to(self.device)
        drawn = self.drawn(len(images), step, micro)
        images, masks = apply(
            images, masks, drawn, geometric=self.augment.geometric, photometric=self.augment.photometric
        )
        parts = self.forward(normalise(images), masks)
        return torch.stack(list(parts.values())).sum(), {name: value.detach() for name, value in parts.items()}

    def drawn(self, count: int, step: int, micro: int) -> Draw:
        """The draws of this process's images in this part of update `step`."""
        draws = generator(self.config.seed, step=step, stream="augment")
        drawn = self.augment.draw(self.config.batch, generator=draws)
        first = (micro * self.place.world + self.place.rank) * count
        return Draw(*(t[first : first + count].to(self.device) for t in drawn))

    def parts(self, images: Tensor, masks: Tensor) -> dict[str, Tensor]:
        """The terms of the loss, summed over all outputs that are supervised."""
        if self.config.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        model = self.model
        deep = self.config.deep_supervision and isinstance(model, DeeplySupervised)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            outputs = model.deep_logits(images) if deep else [model(images)]
        shares = model.deep_weights if isinstance(model, DeeplySupervised) and deep else (1.0,)
        total: dict[str, Tensor] = {}
        for share, logits in zip(shares, outputs, strict=True):
            for name, value in segmentation_loss(logits, masks, weights=self.weights).items():
                total[name] = total.get(name, 0.0) + share * value
        return total

    def after_backward(self, step: int) -> None:  # noqa: ARG002
        average_gradients(self.model.parameters(), self.place.world)

    def after_step(self, step: int) -> None:  # noqa: ARG002
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def names(self, batch: Any) -> list[str]:
        return [self._names[int(position)] for position in batch.positions]

    def name_of(self, position: int) -> str:
        """What the training image at this position is called."""
        return self._names[position]

    @property
    def judged(self) -> Segmenter:
        """The weights that are validated and kept: the averaged ones where there are any."""
        kept = self.model if self.ema is None else self.ema.module
        assert isinstance(kept, Segmenter)
        return kept


def class_weights(config: TrainConfig, device: torch.device) -> Tensor | None:
    """One weight a class, background first; None where all count alike."""
    if config.class_weights is None:
        return None
    wanted = max(2, config.classes)
    if len(config.class_weights) != wanted:
        raise UserError(
            f"class_weights: {len(config.class_weights)} given, but there are {wanted} classes with the background; "
            "give one weight each, background first"
        )
    if not any(config.class_weights):
        raise UserError("class_weights: all are 0; give at least one class some weight")
    return torch.tensor(config.class_weights, device=device)
