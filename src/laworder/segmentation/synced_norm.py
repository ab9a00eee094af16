r"""Batch normalisation over the batch of all processes, on any device.

torch's own `SyncBatchNorm` wants a GPU. This one exchanges each rank's mean and variance, from equal shares of the
batch,

    μ = mean_r(μ_r),     σ² = mean_r(σ²_r + (μ_r − μ)²),

and lets the gradient flow through both, so that `world` processes compute what one does with the whole batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _Gather(torch.autograd.Function):
    """Every rank's vector, as rows. Backward: what all ranks' losses say about this rank's row."""

    @staticmethod
    def forward(ctx: Any, own: Float[Tensor, " n"]) -> Float[Tensor, "r n"]:  # noqa: ARG004
        rows = own.new_zeros(dist.get_world_size(), len(own))
        rows[dist.get_rank()] = own
        dist.all_reduce(rows)
        return rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        return total[dist.get_rank()]


class SyncedBatchNorm(_BatchNorm):
    """A batch norm of any dimension whose statistics in training are those of all ranks' batches together."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        assert input.ndim >= 2, "a batch norm needs (batch, channels, …)"

    def forward(self, input: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:  # noqa: A002
        if not self.training:
            return super().forward(input)
        return self._together(input)  # pyright: ignore what torch says of `disable` is not what it returns

    @torch.compiler.disable
    def _together(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c *size"]:
        mean, variance = self._statistics(x)
        self._remember(mean.detach(), variance.detach(), x.numel() // x.shape[1] * dist.get_world_size())
        shape = (1, -1, *[1] * (x.ndim - 2))
        scale = torch.rsqrt(variance + self.eps)
        scale = scale if self.weight is None else scale * self.weight
        out = (_wide(x) - mean.view(shape)) * scale.view(shape)
        return (out if self.bias is None else out + self.bias.view(shape)).to(x.dtype)

    def _statistics(self, x: Float[Tensor, "b c *size"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        variance, mean = torch.var_mean(_wide(x), dim=axes, correction=0)
        means, variances = _Gather.apply(torch.cat([mean, variance])).tensor_split(2, dim=1)
        mean = means.mean(0)
        return mean, (variances + (means - mean).square()).mean(0)

    @torch.no_grad()
    def _remember(self, mean: Float[Tensor, " c"], variance: Float[Tensor, " c"], count: int) -> None:
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * (count / max(1, count - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def _wide(x: Tensor) -> Tensor:
    """At least float32: half precision is too coarse for statistics."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def synchronise_norms(model: nn.Module) -> None:
    """Put a `SyncedBatchNorm` in the place of every batch norm of `model`: same parameters, buffers and names."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, SyncedBatchNorm):
                setattr(parent, name, _synced(child))


def _synced(norm: _BatchNorm) -> SyncedBatchNorm:
    twin = SyncedBatchNorm(
        norm.num_features,
        eps=norm.eps,
        momentum=norm.momentum,
        affine=norm.affine,
        track_running_stats=norm.track_running_stats,
    )
    twin.weight, twin.bias = norm.weight, norm.bias
    twin.running_mean, twin.running_var = norm.running_mean, norm.running_var
    twin.num_batches_tracked = norm.num_batches_tracked
    return twin.train(norm.training)
