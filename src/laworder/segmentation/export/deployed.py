"""What an exported file computes: uint8 images of any size in, a mask and the probabilities out.

Images are channels-last, (batch, height, width, channels), as Pillow, OpenCV (turned to RGB) and NumPy hold them.
Scaling, normalisation, padding to the model's stride, the cut back, sigmoid or softmax and the threshold are inside.
With `side`, images are first shrunk to side × side, as in training, and the probabilities stretched back.

No operation here depends on the example that an exporter runs: padding is an index that repeats the last row, and the
resize two matrices made from the image's own height and width, which every runtime computes alike.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from laworder.order.base import Segmenter


class Deployed(nn.Module):
    """`image` (uint8, b h w c) → `mask` (uint8, b h w: class indices), `probability` (float32, b k h w)."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: Segmenter, *, side: int | None = None) -> None:
        super().__init__()
        self.model, self.side, self.stride = model, side, model.stride
        self.threshold = model.preprocessing.threshold
        mean, std = (torch.tensor(v, dtype=torch.float64) for v in (model.preprocessing.mean, model.preprocessing.std))
        self.register_buffer("scale", (1 / (255 * std)).float().view(-1, 1, 1))
        self.register_buffer("shift", (-mean / std).float().view(-1, 1, 1))

    def forward(self, image: UInt8[Tensor, "b h w c"]) -> tuple[UInt8[Tensor, "b h w"], Float[Tensor, "b k h w"]]:
        height, width = image.shape[1:3]
        probability = self._probability(image, height, width)
        if self.model.classes == 1:
            return (probability[:, 0] > self.threshold).to(torch.uint8), probability
        return probability.argmax(1).to(torch.uint8), probability

    def _probability(self, image: Tensor, height: int, width: int) -> Tensor:
        if self.side is None:
            rows, columns = padded(height, self.stride), padded(width, self.stride)
            x = image.index_select(1, rows).index_select(2, columns).permute(0, 3, 1, 2).float()
            probability = self._chances(self.model.logits(x * self.scale + self.shift))
            # Cut by index, not by slice: torch.export would guard a slice against sizes that need no cut.
            return probability.index_select(2, rows[:height]).index_select(3, columns[:width])
        x = resized(image.permute(0, 3, 1, 2).float(), self.side, self.side)
        return resized(self._chances(self.model(x * self.scale + self.shift)), height, width)

    def _chances(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits) if self.model.classes == 1 else torch.softmax(logits, dim=1)


def padded(length: int, multiple: int) -> Tensor:
    """Indices 0 … length − 1, the last repeated up to the next multiple."""
    return torch.arange((length + multiple - 1) // multiple * multiple).clamp(max=length - 1)


def resized(x: Float[Tensor, "b c h w"], height: int, width: int) -> Float[Tensor, "b c height width"]:
    """Bilinear where it stretches, averaging over the shrunk area where it shrinks (as Pillow and `antialias` do)."""
    return triangles(x.shape[2], height) @ x @ triangles(x.shape[3], width).transpose(0, 1)


def triangles(old: int, new: int) -> Float[Tensor, "new old"]:
    """Weights of each old place in each new one: a triangle as wide as the larger of both steps, summing to one."""
    step = old / torch.arange(new, new + 1, dtype=torch.float32)
    middle = (torch.arange(new, dtype=torch.float32) + 0.5) * step
    place = torch.arange(old, dtype=torch.float32) + 0.5
    weight = (1 - (place - middle[:, None]).abs() / step.clamp(min=1)).clamp(min=0)
    return weight / weight.sum(1, keepdim=True)
