"""The cost counter, against sums by hand and the published table."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from laworder.order.base import Segmenter
from laworder.segmenters import create, list_models
from laworder.segmenters.profile import (
    FlopCounter,
    conv_flops,
    cost,
    count_parameters,
    flops,
    latency_ms,
    model_table,
    peak_bytes,
)


class Known(Segmenter):
    """Every kind of operation once, small enough to count on paper."""

    def __init__(self) -> None:
        super().__init__(in_channels=2)
        self.down = nn.Conv2d(2, 6, 3, stride=2, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.linear = nn.Linear(4, 8)
        self.head = nn.Conv2d(8, 1, 1, bias=False)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(self.down(x))
        return self.head(self.linear(x.movedim(1, -1)).movedim(-1, 1))


# At 32²: down makes 6 maps of 16² from 1 channel a group; up makes 4 of 32²; linear is 4 → 8 at 32² places.
DOWN = 2 * (6 * 16 * 16) * 1 * 9
UP_BY_OUTPUT, UP_BY_INPUT = 2 * (4 * 32 * 32) * 6 * 4, 2 * (6 * 16 * 16) * 4 * 4
LINEAR = 2 * (8 * 32 * 32) * 4
HEAD = 2 * (1 * 32 * 32) * 8


def test_conv_flops_by_hand() -> None:
    assert conv_flops(Known(), 32) == DOWN + UP_BY_OUTPUT + HEAD


def test_flops_by_hand() -> None:
    assert flops(Known(), 32) == DOWN + UP_BY_INPUT + LINEAR + HEAD
    assert UP_BY_OUTPUT == 4 * UP_BY_INPUT


def test_sizes_need_not_be_square() -> None:
    assert flops(Known(), (32, 64)) == 2 * flops(Known(), 32)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention_is_counted_whichever_kernel_runs_it(device: str, dtype: torch.dtype) -> None:
    q = torch.zeros(2, 3, 10, 8, device=device, dtype=dtype)
    k, v = torch.zeros(2, 2, 3, 20, 8, device=device, dtype=dtype)
    with FlopCounter() as counter, torch.no_grad():
        F.scaled_dot_product_attention(q, k, v)
    assert counter.total == 2 * 2 * 3 * 10 * 20 * 8 * 2


def test_attention_by_the_formula() -> None:
    q = torch.zeros(2, 3, 10, 8)
    k = torch.zeros(2, 3, 20, 8)
    with FlopCounter() as counter:
        torch.softmax(q @ k.transpose(2, 3), -1) @ k
    assert counter.total == 2 * 2 * 3 * 10 * 20 * 8 * 2


def test_matrix_products_by_hand() -> None:
    a, b = torch.zeros(3, 4), torch.zeros(4, 5)
    with FlopCounter() as counter:
        torch.mm(a, b)
        torch.addmm(torch.zeros(5), a, b)
        torch.baddbmm(torch.zeros(2, 3, 5), a.expand(2, 3, 4), b.expand(2, 4, 5))
    assert counter.total == 2 * 3 * 4 * 5 * (1 + 1 + 2)


@pytest.mark.parametrize(
    ("name", "giga"),
    [
        ("order_backbone", 0.0946),
        ("order_01", 0.1119),
        ("order_12", 0.1323),
        ("order_23", 0.1701),
        ("order_0123", 0.1874),
        ("order_se", 0.0946),
        ("order_cbam", 0.0948),
        ("mkunet_t", 0.0993),
    ],
)
def test_the_published_convention_to_four_digits(name: str, giga: float) -> None:
    assert round(conv_flops(create(name)) / 1e9, 4) == giga


def test_the_published_unet() -> None:
    assert conv_flops(create("unet")) / 1e9 == pytest.approx(109.220, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "giga"), [("order_01", 0.540), ("order_12", 6.98), ("order_23", 109.7), ("order_0123", 110.1)]
)
def test_the_formula_with_its_three_products(name: str, giga: float) -> None:
    assert flops(create(name, form="reference")) / 1e9 == pytest.approx(giga, rel=6e-4)


@pytest.mark.parametrize(("name", "tokens"), [("order_01", (256, 1024)), ("order_12", (1024, 4096))])
def test_the_exact_form_with_its_four(name: str, tokens: tuple[int, ...]) -> None:
    attention = sum(4 * 2 * n * n * 64 for n in tokens)
    assert flops(create(name)) == conv_flops(create(name)) + attention


def test_side_heads_count_in_the_published_convention_only() -> None:
    sides = sum(2 * c * s * s for c, s in [(16, 32), (8, 64), (4, 128)])
    assert conv_flops(create("mkunet_t")) == flops(create("mkunet_t")) + sides


def test_counting_leaves_the_model_as_it_was() -> None:
    model = create("order_01").train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flops(model, 64)
    conv_flops(model, 64)
    latency_ms(model, 64, repeats=1)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_peak_bytes_is_the_most_held_at_once() -> None:
    def run() -> torch.Tensor:
        a = torch.empty(1 << 20, dtype=torch.uint8)
        b = torch.empty(3 << 20, dtype=torch.uint8)
        del a
        return torch.empty(2 << 20, dtype=torch.uint8) if b.numel() else b

    assert 5 << 20 <= peak_bytes(run) < (5 << 20) + (1 << 16)


def test_cost_and_table() -> None:
    row = cost("order_01")
    assert row["params"] == 42_265
    assert row["conv_flops"] == conv_flops(create("order_01"), 256)
    assert row["flops"] == flops(create("order_01"), 256)
    table = model_table("order_*", size=64)
    assert [r["name"] for r in table] == sorted(list_models("order_*"), key=lambda n: count_parameters(create(n)))
    for r in table:
        assert r["cpu_ms"] > 0
        assert all(r[key] for key in ("licence", "source", "differs", "summary", "flops"))


def test_frozen_parameters_do_not_count() -> None:
    model = create("order_01")
    model.head.requires_grad_(False)
    assert count_parameters(model) == 42_260
