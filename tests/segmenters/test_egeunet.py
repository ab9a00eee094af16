"""EGE-UNet: both sizes to the parameter and to the FLOP, and what its two modules claim to do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from laworder.errors import UserError
from laworder.segmenters.egeunet import AggregationBridge, ChannelNorm, EGEUNet, LineAttention, PlaneAttention
from laworder.segmenters.losses import bce_dice_loss, deep_supervision_loss
from laworder.segmenters.registry import card, create


def conv_flops(model: nn.Module, *, side: int = 256) -> int:
    """2·numel(out)·(Cin/groups)·k², summed over the 2-D convolutions that run; the model and its input have no data."""
    total = 0

    def add(module: nn.Conv2d, _: object, out: Tensor) -> None:
        nonlocal total
        height, width = module.kernel_size
        total += 2 * out.numel() * (module.in_channels // module.groups) * height * width

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(add)
    model.eval()(torch.zeros(1, 3, side, side, device="meta"))
    return total


@pytest.mark.parametrize(
    ("name", "parameters", "flops", "shown"),
    [("egeunet", 53_374, 144_153_088, "0.144"), ("egeunet_paper", 514_702, 617_249_280, "0.617")],
)
def test_counts_are_the_papers(name: str, parameters: int, flops: int, shown: str) -> None:
    with torch.device("meta"):
        model = create(name)
        counted = conv_flops(model)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert counted == flops
    assert f"{counted / 1e9:.3f}" == shown


@pytest.mark.parametrize("name", ["egeunet", "egeunet_paper"])
@pytest.mark.parametrize("deep", [False, True])
def test_every_parameter_learns(name: str, deep: bool) -> None:
    """Also from the final output alone: the coarse masks steer the bridges, so their heads are not idle there."""
    model = create(name)
    assert isinstance(model, EGEUNet)
    x, mask = torch.rand(2, 3, 64, 64), (torch.rand(2, 1, 64, 64) > 0.7).float()
    outputs = model.deep_logits(x) if deep else [model(x)]
    weights = model.deep_weights if deep else None
    deep_supervision_loss(outputs, mask, loss=bce_dice_loss, weights=weights).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("size", [(64, 64), (33, 33), (50, 71)])
def test_six_outputs_at_the_inputs_size_finest_first(size: tuple[int, int]) -> None:
    model = EGEUNet(in_channels=2, classes=3).eval()
    x = torch.rand(2, 2, *size)
    outputs = model.deep_logits(x)
    assert [tuple(out.shape) for out in outputs] == [(2, 3, *size)] * 6 == [(2, 3, *size)] * len(model.deep_weights)
    assert torch.equal(outputs[0], model(x))


def test_side_outputs_are_half_a_thirtysecond_and_between() -> None:
    sides = EGEUNet().eval().side_logits(torch.rand(1, 3, 64, 96))
    assert [tuple(side.shape[2:]) for side in sides] == [(32, 48), (32, 48), (16, 24), (8, 12), (4, 6), (2, 3)]


def test_coarse_masks_are_resized_corner_to_corner() -> None:
    model, x = EGEUNet().eval(), torch.rand(1, 3, 64, 96)
    for out, side in zip(model.deep_logits(x), model.side_logits(x), strict=True):
        rows = side.shape[2]
        step = (rows - 1) / 63  # one pixel of the output, in pixels of the coarse mask
        expected = side[..., 0, 0] + step * (side[..., 1, 0] - side[..., 0, 0])
        assert torch.allclose(out[..., 1, 0], expected, rtol=1e-3, atol=1e-3)
        assert torch.allclose(out[..., -1, -1], side[..., -1, -1], rtol=1e-3, atol=1e-3)


def test_channels_last_and_batches_change_nothing() -> None:
    model = EGEUNet().double().eval()
    x = torch.rand(3, 3, 64, 96, dtype=torch.float64)
    expected = model(x)
    assert torch.allclose(model(x[:1]), expected[:1], atol=1e-9)
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  (torch's stubs lack it)
    assert torch.allclose(model(x.to(memory_format=torch.channels_last)), expected, atol=1e-9)


def test_channel_norm_is_layer_norm_over_channels() -> None:
    norm, x = ChannelNorm(6), torch.randn(2, 6, 3, 5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    centred = x - x.mean(1, keepdim=True)
    standard = centred / (centred.square().mean(1, keepdim=True) + 1e-6).sqrt()
    expected = standard * norm.weight[:, None, None] + norm.bias[:, None, None]
    assert torch.allclose(norm(x), expected, atol=1e-6)


@pytest.mark.parametrize(("axis", "constant"), [(2, 3), (3, 2)])
def test_line_attention_varies_along_its_own_axis_only(axis: int, constant: int) -> None:
    attention = LineAttention(4, axis=axis)
    nn.init.normal_(attention.line)
    weight = attention(torch.ones(1, 4, 10, 12))
    assert torch.equal(weight, weight.narrow(constant, 0, 1).expand_as(weight))
    assert weight.std(dim=axis).min() > 0


def test_attention_multiplies() -> None:
    x = torch.randn(2, 4, 10, 12)
    for attention in (PlaneAttention(4), LineAttention(4, axis=2), LineAttention(4, axis=3)):
        assert torch.allclose(attention(x), attention(torch.ones_like(x)) * x, atol=1e-6)


def test_plane_attention_resizes_its_map_corner_to_corner() -> None:
    attention = PlaneAttention(2)
    attention.refine = nn.Sequential()
    nn.init.normal_(attention.plane)
    weight = attention(torch.ones(1, 2, 5, 21))
    for row in (0, -1):
        for column in (0, -1):
            assert torch.allclose(weight[..., row, column], attention.plane[..., row, column], atol=1e-6)


def test_bridge_hears_the_deeper_skip_the_level_and_the_mask() -> None:
    bridge = AggregationBridge(16, 8, 1)
    inputs = [torch.randn(1, 16, 4, 4), torch.randn(1, 8, 8, 8), torch.randn(1, 1, 8, 8)]
    before = bridge(*inputs)
    assert before.shape == (1, 8, 8, 8)
    for index in range(3):
        changed = [torch.randn_like(x) if i == index else x for i, x in enumerate(inputs)]
        assert not torch.allclose(bridge(*changed), before, atol=1e-3)


def test_bridge_reaches_as_far_as_its_dilations() -> None:
    """A mask's single pixel reaches 7 pixels away, and of the other rings just those that the dilations name."""
    bridge = AggregationBridge(16, 8, 1)
    for group in bridge.groups:
        group.get_submodule("0").forward = lambda x: x  # a norm would spread one channel's pixel over the others
    bridge.get_submodule("merge.0").forward = lambda x: x
    deep, skip, mask = torch.zeros(1, 16, 1, 1), torch.zeros(1, 8, 17, 17), torch.zeros(1, 1, 17, 17)
    before = bridge(deep, skip, mask)
    mask[..., 8, 8] = 1
    changed = (bridge(deep, skip, mask) - before).abs().sum(dim=1)[0, 8, 8:]
    assert [ring for ring, value in enumerate(changed.tolist()) if value > 1e-6] == [0, 1, 2, 5, 7]


@pytest.mark.parametrize("widths", [(8, 16, 24), (8, 16, 24, 32, 48, 63), (0, 16, 24, 32, 48, 64), (8,) * 7])
def test_bad_widths_are_named(widths: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="widths must be six positive multiples of 4"):
        create("egeunet", widths=widths)


def test_deep_logits_check_their_input_as_forward_does() -> None:
    with pytest.raises(UserError, match="3 channels"):
        EGEUNet().deep_logits(torch.rand(1, 1, 64, 64))


def test_the_card_says_which_one_is_the_authors() -> None:
    assert "not its authors' default" in card("egeunet_paper").differs
