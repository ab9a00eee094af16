"""A small segmenter learns the phantom, and finds bigger lesions easier."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from laworder.data.augment import Augment
from laworder.data.load import load_arrays
from laworder.data.sources.phantom import PhantomSource

SIZE = 64


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, channels: int, widths: tuple[int, ...] = (8, 16, 24, 32)) -> None:
        super().__init__()
        self.down = nn.ModuleList(conv(i, o) for i, o in zip((channels, *widths), widths, strict=False))
        self.up = nn.ModuleList(conv(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skips.pop()], dim=1))
        return self.head(x)


def dice(predicted: Tensor, truth: Tensor) -> Tensor:
    both = (predicted * truth).sum((1, 2, 3))
    return (2 * both + 1) / (predicted.sum((1, 2, 3)) + truth.sum((1, 2, 3)) + 1)


def dice_by_size(kind: str, channels: int, steps: int) -> list[float]:
    """Held-out Dice in thirds of lesion size, after a short training."""
    train = load_arrays(PhantomSource(240, modality=kind, size=SIZE, seed=1), SIZE, channels, progress=False)
    test = load_arrays(PhantomSource(120, modality=kind, size=SIZE, seed=2), SIZE, channels, progress=False)
    generator = torch.Generator().manual_seed(0)
    net, augment = SmallUNet(channels), Augment()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    for _ in range(steps):
        pick = torch.randint(0, len(train.names), (8,), generator=generator)
        images, masks = augment(train.images[pick] / 255, train.masks[pick].float(), generator)
        logits = net(images * 4 - 2)
        loss = F.binary_cross_entropy_with_logits(logits, masks) + (1 - dice(logits.sigmoid(), masks)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        scores = dice((net(test.images / 255 * 4 - 2) > 0).float(), test.masks.float())
    order = test.masks.float().mean((1, 2, 3)).argsort()
    return [float(part.mean()) for part in scores[order].chunk(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "channels", "steps", "least"), [("mr", 1, 160, 0.6), ("ct", 1, 200, 0.5), ("colon", 3, 300, 0.3)]
)
def test_bigger_lesions_are_easier(kind: str, channels: int, steps: int, least: float) -> None:
    small, middle, large = dice_by_size(kind, channels, steps)
    assert small + 0.05 < middle < large + 0.03
    assert large > least  # there is something to learn
    assert small < 0.95  # and something left to learn
