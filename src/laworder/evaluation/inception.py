r"""Inception-2015, the network behind FID: an image at 299² → 2048 numbers.

It is TensorFlow's graph of December 2015 with its three oddities: average pools that do not count the padding, a
max pool in the last block, and no gain in its normalisations (ε = 1e-3). Every convolution is followed by such a
normalisation with fixed statistics and by ReLU, so that

    ReLU(γ (W ∗ x − μ) / √(σ² + ε) + β) = ReLU(W' ∗ x + b'),   W' = W γ / √(σ² + ε),   b' = β − μ γ / √(σ² + ε):

the weights are folded when they are read, and 94 convolutions with bias remain. Layers are named as in pytorch-fid.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

FEATURES = 2048
EPSILON = 1e-3


def fold(layers: Mapping[str, tuple[Tensor, Tensor, Tensor, Tensor]]) -> dict[str, Tensor]:
    """W' and b' of every convolution from its W, β, μ and σ² (γ = 1), computed in float64."""
    state: dict[str, Tensor] = {}
    for name, (weight, beta, mean, variance) in layers.items():
        scale = (variance.double() + EPSILON).rsqrt()
        state[f"{name}.weight"] = (weight.double() * scale[:, None, None, None]).float()
        state[f"{name}.bias"] = (beta.double() - mean.double() * scale).float()
    return state


class _Conv(nn.Conv2d):
    """Convolution, the folded normalisation as its bias, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], *, stride: int = 1, pad: bool = True):
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if pad else (0, 0)
        super().__init__(inputs, outputs, sides, stride=stride, padding=padding)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (nn.Conv2d's own name)
        return F.relu_(super().forward(input))


def _average(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class _A(nn.Module):
    """35² blocks."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = _Conv(inputs, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = _Conv(inputs, 48, 1), _Conv(48, 64, 5)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _Conv(inputs, 64, 1), _Conv(64, 96, 3)
        self.branch3x3dbl_3 = _Conv(96, 96, 3)
        self.branch_pool = _Conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        twice = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch1x1(x), five, twice, self.branch_pool(_average(x))], 1)


class _B(nn.Module):
    """35² → 17²."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = _Conv(inputs, 384, 3, stride=2, pad=False)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _Conv(inputs, 64, 1), _Conv(64, 96, 3)
        self.branch3x3dbl_3 = _Conv(96, 96, 3, stride=2, pad=False)

    def forward(self, x: Tensor) -> Tensor:
        twice = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), twice, F.max_pool2d(x, 3, stride=2)], 1)


class _C(nn.Module):
    """17² blocks, with rows and columns of seven."""

    def __init__(self, inputs: int, c: int) -> None:
        super().__init__()
        self.branch1x1 = _Conv(inputs, 192, 1)
        self.branch7x7_1, self.branch7x7_2 = _Conv(inputs, c, 1), _Conv(c, c, (1, 7))
        self.branch7x7_3 = _Conv(c, 192, (7, 1))
        self.branch7x7dbl_1, self.branch7x7dbl_2 = _Conv(inputs, c, 1), _Conv(c, c, (7, 1))
        self.branch7x7dbl_3, self.branch7x7dbl_4 = _Conv(c, c, (1, 7)), _Conv(c, c, (7, 1))
        self.branch7x7dbl_5 = _Conv(c, 192, (1, 7))
        self.branch_pool = _Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        twice = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        twice = self.branch7x7dbl_5(self.branch7x7dbl_4(twice))
        return torch.cat([self.branch1x1(x), seven, twice, self.branch_pool(_average(x))], 1)


class _D(nn.Module):
    """17² → 8²."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = _Conv(inputs, 192, 1), _Conv(192, 320, 3, stride=2, pad=False)
        self.branch7x7x3_1, self.branch7x7x3_2 = _Conv(inputs, 192, 1), _Conv(192, 192, (1, 7))
        self.branch7x7x3_3, self.branch7x7x3_4 = _Conv(192, 192, (7, 1)), _Conv(192, 192, 3, stride=2, pad=False)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), seven, F.max_pool2d(x, 3, stride=2)], 1)


class _E(nn.Module):
    """8² blocks; the second one pools by maximum, as the graph of 2015 does."""

    def __init__(self, inputs: int, *, maximum: bool) -> None:
        super().__init__()
        self.maximum = maximum
        self.branch1x1, self.branch3x3_1 = _Conv(inputs, 320, 1), _Conv(inputs, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = _Conv(384, 384, (1, 3)), _Conv(384, 384, (3, 1))
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _Conv(inputs, 448, 1), _Conv(448, 384, 3)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = _Conv(384, 384, (1, 3)), _Conv(384, 384, (3, 1))
        self.branch_pool = _Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        twice = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = F.max_pool2d(x, 3, stride=1, padding=1) if self.maximum else _average(x)
        return torch.cat(
            [
                self.branch1x1(x),
                *(self.branch3x3_2a(three), self.branch3x3_2b(three)),
                *(self.branch3x3dbl_3a(twice), self.branch3x3dbl_3b(twice)),
                self.branch_pool(pooled),
            ],
            1,
        )


class Inception(nn.Module):
    """Images in [−1, 1] at 299² → features before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = _Conv(3, 32, 3, stride=2, pad=False)
        self.Conv2d_2a_3x3, self.Conv2d_2b_3x3 = _Conv(32, 32, 3, pad=False), _Conv(32, 64, 3)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = _Conv(64, 80, 1), _Conv(80, 192, 3, pad=False)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = _A(192, 32), _A(256, 64), _A(288, 64)
        self.Mixed_6a = _B(288)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = (
            _C(768, 128),
            _C(768, 160),
            _C(768, 160),
            _C(768, 192),
        )
        self.Mixed_7a = _D(768)
        self.Mixed_7b, self.Mixed_7c = _E(1280, maximum=False), _E(2048, maximum=True)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 2048"]:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, stride=2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, stride=2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        return self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))).mean((2, 3))
