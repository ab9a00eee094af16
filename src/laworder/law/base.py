"""The seam: `objective(pred, target, mask, *, teacher=None) -> Loss`. Nothing else in training knows which one runs.

Every objective here is a weighted mean squared error,

    L = mean_b s_b · mean_{c,h,w} [ w ⊙ (pred − target)² ]                                             (eq. 8)

with its own w (B×1×h×w, broadcast over channels) and an optional weight s_b per sample for the timestep. A subclass
says what w is (`weigh`), and adds terms if it has any (`finish`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.law.diagnostics import measure
from laworder.law.guard import refuse_in_sampling
from laworder.law.loss import Loss
from laworder.law.masks import as_classes, check_resize, latent_mask, vanished


class Weighing(NamedTuple):
    """What a subclass decides."""

    w: Float[Tensor, "b 1 *size"]
    delta: Float[Tensor, "b 1 *size"] | None = None
    capped: Bool[Tensor, "b 1 *size"] | None = None
    """Where the upper clamp binds."""
    informative: Bool[Tensor, "b 1 *ones"] | None = None
    """False for samples whose mask is empty or full; None where the objective does not care."""


class Batch(NamedTuple):
    """One checked call, at the latents' resolution and in the statistics' type."""

    pred: Float[Tensor, "b c *size"]
    """As given: its own type, attached to the denoiser."""
    target: Float[Tensor, "b c *size"]
    m: Float[Tensor, "b k *size"]
    error: Float[Tensor, "b 1 *size"]
    """Mean over channels of (pred − target)². Since w is the same for all channels, weighting it loses nothing."""
    teacher: Float[Tensor, "b c *size"] | None
    timestep_weight: Float[Tensor, " b"] | None
    time: Float[Tensor, " b"] | None


class Objective(nn.Module, ABC):
    """What all objectives share: geometry, checks, the weighted error, diagnostics.

    `channels`: latent channels, checked where given. `spatial_dims`: 2 or 3. `classes`: lesion classes, that is mask
    channels; with one class a mask of several channels is averaged. `resize`: how the mask reaches the latents' grid
    (`laworder.law.masks.RESIZES`). `diagnostics=False` leaves `stats` empty, and saves its few dozen small kernels.
    """

    needs_teacher: ClassVar[bool] = False
    """Whether `forward` wants a teacher's prediction."""

    def __init__(
        self,
        *,
        channels: int | None = None,
        spatial_dims: int = 2,
        classes: int = 1,
        resize: str = "nearest",
        diagnostics: bool = True,
    ) -> None:
        super().__init__()
        if channels is not None and channels < 1:
            raise UserError(f"channels (of the latents) must be at least 1, not {channels}")
        if spatial_dims not in (2, 3):
            raise UserError(f"spatial_dims must be 2 or 3, not {spatial_dims}")
        if classes < 1:
            raise UserError(f"classes (lesion classes, background not counted) must be at least 1, not {classes}")
        self.channels, self.spatial_dims, self.classes = channels, spatial_dims, classes
        self.resize, self.diagnostics = check_resize(resize), diagnostics

    @abstractmethod
    def weigh(self, batch: Batch) -> Weighing:
        """The weight map w, and what it was made of."""

    def finish(self, batch: Batch, denoise: Float[Tensor, ""], weighing: Weighing) -> tuple[Tensor, dict[str, Tensor]]:
        """Total and parts, given the weighted denoising loss. Subclasses with further terms add them here."""
        del batch, weighing
        return denoise, {"denoise": denoise}

    def forward(
        self,
        pred: Float[Tensor, "b c *size"],
        target: Float[Tensor, "b c *size"],
        mask: Float[Tensor, "b k *full"] | Bool[Tensor, "b k *full"],
        *,
        teacher: Float[Tensor, "b c *size"] | None = None,
        timestep_weight: Float[Tensor, " b"] | None = None,
        time: Float[Tensor, " b"] | None = None,
    ) -> Loss:
        """The loss of one batch.

        `mask`: any resolution, boolean or in [0, 1], lesion classes on axis 1 (which may be left out for one class).
        `teacher`: the teacher's prediction, for objectives with `needs_teacher`; others ignore it.
        `timestep_weight`: one factor per sample on its denoising terms (`laworder.law.timestep`).
        `time`: diffusion time in [0, 1] per sample, for a `LawPlus(time=True)`; others ignore it.
        """
        refuse_in_sampling(type(self).__name__)
        check_predictions(self, pred, target, teacher)
        check_mask(self, mask, pred)
        for name, value in (("timestep_weight", timestep_weight), ("time", time)):
            if value is not None and value.shape != pred.shape[:1]:
                raise UserError(f"{name} must be one number per sample, [{pred.shape[0]}], not {list(value.shape)}")
        with torch.autocast(pred.device.type, enabled=False):
            return self._loss(pred, target, mask, teacher, timestep_weight, time)

    def _loss(
        self,
        pred: Tensor,
        target: Tensor,
        mask: Tensor,
        teacher: Tensor | None,
        timestep_weight: Tensor | None,
        time: Tensor | None,
    ) -> Loss:
        kind = torch.promote_types(pred.dtype, torch.float32)
        full = (mask if mask.ndim == pred.ndim else mask.unsqueeze(1)).to(kind)
        m = as_classes(latent_mask(full, pred.shape[2:], resize=self.resize), self.classes)
        error = squared_error(pred, target, kind)
        batch = Batch(pred, target, m, error, teacher, timestep_weight, time)
        weighing = self.weigh(batch)
        total, parts = self.finish(batch, reduce(weighing.w * error, timestep_weight), weighing)
        stats: dict[str, Tensor] = {}
        if self.diagnostics:
            lost = vanished(full, m)
            with torch.no_grad():
                stats = measure(weighing.w, m, error, weighing.delta, weighing.capped, weighing.informative, lost)
        delta = None if weighing.delta is None else weighing.delta.detach()
        return Loss(total, parts, weighing.w.detach(), stats, delta)

    def parameter_groups(self, *, lr: float | None = None) -> list[dict[str, Any]]:
        """The learnable weighter's parameters as optimiser groups (none: an empty list), with a rate of their own.

        >>> torch.optim.AdamW([{"params": unet.parameters()}, *law.parameter_groups(lr=1e-4)], lr=1e-5)
        """
        params = list(self.parameters())
        if not params:
            return []
        return [{"params": params} if lr is None else {"params": params, "lr": lr}]

    def extra_repr(self) -> str:
        return f"channels={self.channels}, classes={self.classes}, resize={self.resize!r}"


def squared_error(pred: Tensor, target: Tensor, kind: torch.dtype) -> Float[Tensor, "b 1 *size"]:
    """Mean over channels of (pred − target)², in the statistics' type."""
    return F.mse_loss(pred.to(kind), target.to(kind), reduction="none").mean(dim=1, keepdim=True)


def reduce(weighted: Float[Tensor, "b 1 *size"], timestep_weight: Float[Tensor, " b"] | None) -> Float[Tensor, ""]:
    """Mean over pixels, times the timestep's weight, mean over samples."""
    if timestep_weight is None:
        return weighted.mean()
    return (weighted.flatten(1).mean(dim=1) * timestep_weight.to(weighted.dtype)).mean()


def check_predictions(objective: Objective, pred: Tensor, target: Tensor, teacher: Tensor | None) -> None:
    """Refuse what is not a batch of latents and its target, in words."""
    axes = objective.spatial_dims + 2
    if pred.ndim != axes:
        raise UserError(
            f"pred must have {axes} axes (batch, channels and {objective.spatial_dims} spatial), not {pred.ndim}: "
            f"its shape is {list(pred.shape)}; set spatial_dims for the other kind"
        )
    if not pred.is_floating_point():
        raise UserError(f"pred must be floating point, not {pred.dtype}")
    if objective.channels is not None and pred.shape[1] != objective.channels:
        raise UserError(f"pred has {pred.shape[1]} channels, but the objective was built with {objective.channels}")
    for name, other in (("target", target), ("teacher", teacher)):
        if other is not None and other.shape != pred.shape:
            raise UserError(f"{name} must have pred's shape {list(pred.shape)}, not {list(other.shape)}")
    if objective.needs_teacher and teacher is None:
        raise UserError(f"{type(objective).__name__} needs the teacher's prediction: call it with teacher=...")


def check_mask(objective: Objective, mask: Tensor, pred: Tensor) -> None:
    """Refuse masks that are index maps, of another batch, or of another number of classes."""
    if mask.ndim not in (pred.ndim, pred.ndim - 1):
        raise UserError(f"mask must have {pred.ndim} axes (batch, classes, spatial), not shape {list(mask.shape)}")
    if mask.shape[0] != pred.shape[0]:
        raise UserError(f"mask holds {mask.shape[0]} samples, but pred {pred.shape[0]}")
    if not mask.is_floating_point() and mask.dtype != torch.bool:
        raise UserError(
            f"mask must be boolean or in [0, 1], not {mask.dtype}: pass `mask > 127` for a 0/255 mask, "
            "or one channel per class for a map of class numbers"
        )
    found = mask.shape[1] if mask.ndim == pred.ndim else 1
    if objective.classes > 1 and found != objective.classes:
        raise UserError(f"mask has {found} channels, but the objective was built with classes={objective.classes}")
