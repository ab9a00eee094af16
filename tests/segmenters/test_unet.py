"""U-Net: the paper's "nnUNet" row to the parameter and to the FLOP."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from laworder.errors import UserError
from laworder.segmenters.registry import card, create
from laworder.segmenters.unet import UNet


def conv_flops(model: nn.Module, *, side: int = 256) -> int:
    """2·numel(out)·(Cin/groups)·k², summed over the 2-D convolutions that run; the model and its input have no data."""
    total = 0

    def add(module: nn.Conv2d | nn.ConvTranspose2d, _: object, out: torch.Tensor) -> None:
        nonlocal total
        height, width = module.kernel_size
        total += 2 * out.numel() * (module.in_channels // module.groups) * height * width

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.register_forward_hook(add)
    model.eval()(torch.zeros(1, 3, side, side, device="meta"))
    return total


def test_parameters_are_the_papers() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in create("unet").parameters()) == 31_037_633


def test_flops_are_the_papers() -> None:
    with torch.device("meta"):
        flops = conv_flops(create("unet"))
    assert flops == 109_219_676_160
    assert f"{flops / 1e9:.3f}" == "109.220"


def test_convolutions_have_no_bias_but_the_up_convolutions_and_the_head() -> None:
    model = UNet(widths=(4, 8, 12))
    plain = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(plain) == 2 * 5
    assert all(m.bias is None for m in plain)
    assert all(m.bias is not None for m in [*model.up, model.head])


def test_every_parameter_learns() -> None:
    model = UNet(widths=(4, 8, 12))
    model(torch.rand(2, 3, 64, 64)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("size", [(33, 33), (50, 71), (64, 32)])
def test_any_size_in_and_out(size: tuple[int, int]) -> None:
    model = UNet(widths=(4, 8, 12, 16, 20), in_channels=2, classes=3).eval()
    assert model(torch.rand(1, 2, *size)).shape == (1, 3, *size)


def test_sizes_that_fit_are_not_padded() -> None:
    model = UNet(widths=(4, 8, 12)).eval()
    x = torch.rand(1, 3, 36, 44)  # multiples of the stride, 4
    assert model.stride == 4
    assert torch.equal(model(x), model.logits(x))


def test_the_skip_reaches_the_output() -> None:
    """With the up-convolutions silenced, only skips carry the image, and the logits still see it."""
    model = UNet(widths=(4, 8)).eval()
    for parameter in model.up.parameters():
        nn.init.zeros_(parameter)
    assert not torch.equal(model(torch.zeros(1, 3, 32, 32)), model(torch.ones(1, 3, 32, 32)))


def test_channels_last_and_batches_change_nothing() -> None:
    model = UNet(widths=(4, 8, 12)).eval()
    x = torch.rand(3, 3, 64, 48)
    expected = model(x)
    assert torch.allclose(model(x[:1]), expected[:1], atol=1e-6)
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  (torch's stubs lack it)
    assert torch.allclose(model(x.to(memory_format=torch.channels_last)), expected, atol=1e-5)


@pytest.mark.parametrize("widths", [(), (8,), (8, 0), (8, -4)])
def test_bad_widths_are_named(widths: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="widths must name at least two levels"):
        create("unet", widths=widths)


def test_its_card_says_that_it_is_no_nnunet() -> None:
    assert "nnU-Net" in card("unet").differs
