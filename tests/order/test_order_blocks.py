"""The blocks: their counts by formula and their behaviour by hand."""

from __future__ import annotations

import pytest
import torch

from laworder.order.blocks import MKIR, ChannelAttention, SpatialAttention, channel_shuffle, double, halve, init_normal
from laworder.segmenters.profile import count_parameters


@pytest.mark.parametrize(("i", "o"), [(3, 4), (4, 8), (24, 32), (32, 24), (4, 4)])
def test_parameters_of_mkir(i: int, o: int) -> None:
    expected = 2 * i * i + 86 * i + 2 * i * o + 2 * o + (i * o if i != o else 0)
    assert count_parameters(MKIR(in_channels=i, out_channels=o)) == expected


def test_mkir_by_its_equation() -> None:
    block = MKIR(in_channels=4, out_channels=4).eval()
    init_normal(block)
    x = torch.randn(2, 4, 7, 9)
    wide = block.expand(x)
    mixed = sum(branch(wide) for branch in block.depthwise)
    shuffled = torch.nn.functional.channel_shuffle(mixed, 4)
    torch.testing.assert_close(block(x), x + block.project(shuffled))


@pytest.mark.parametrize("shape", [(2, 12, 3, 5), (1, 12, 2, 3, 4)])
def test_channel_shuffle(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    out = channel_shuffle(x, 3)
    for g in range(3):
        for j in range(4):
            assert torch.equal(out[:, j * 3 + g], x[:, g * 4 + j])


def test_channel_attention_by_hand() -> None:
    module = ChannelAttention(channels=6, hidden=2)
    x = torch.randn(3, 6, 4, 5)
    W1, W2, b = module.squeeze.weight.flatten(1), module.excite.weight.flatten(1), module.excite.bias
    total = sum(torch.relu(pooled @ W1.T) @ W2.T + b for pooled in (x.mean((2, 3)), x.amax((2, 3))))
    torch.testing.assert_close(module(x).flatten(1), torch.sigmoid(total))


def test_spatial_attention_sees_mean_and_maximum() -> None:
    module = SpatialAttention()
    x = torch.randn(2, 5, 8, 8)
    taps = module.conv.weight[0]
    expected = torch.nn.functional.conv2d(torch.stack([x.mean(1), x.amax(1)], 1), taps[None], padding=3)
    torch.testing.assert_close(module(x), torch.sigmoid(expected))
    assert count_parameters(module) == 98


@pytest.mark.parametrize("shape", [(1, 2, 4, 6), (1, 2, 4, 6, 8)])
def test_halving_and_doubling(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert halve(x).shape[2:] == tuple(s // 2 for s in shape[2:])
    assert halve(x).flatten()[0] == x[0, 0][(slice(0, 2),) * (x.ndim - 2)].max()
    assert double(x).shape[2:] == tuple(2 * s for s in shape[2:])


def test_initialisation_is_normal_with_the_published_width() -> None:
    block = MKIR(in_channels=32, out_channels=32)
    init_normal(block)
    weights = torch.cat([m.weight.flatten() for m in block.modules() if isinstance(m, torch.nn.Conv2d)])
    assert weights.std().item() == pytest.approx(0.02, rel=0.05)
    assert weights.mean().abs().item() < 1e-3
