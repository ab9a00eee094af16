"""Bidirectional attention: the two forms agree, and both say what the paper says."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laworder.errors import UserError
from laworder.order import BidirectionalAttention
from laworder.order.attention import (
    ChannelRMSNorm,
    ConfidenceGate,
    exact_attention,
    join_heads,
    reference_attention,
    split_heads,
)
from laworder.segmenters.profile import count_parameters, peak_bytes


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest value where that is above one."""
    return float((a - b).abs().max() / max(1.0, float(b.abs().max())))


def run(module: BidirectionalAttention, form: str, d: Tensor, e: Tensor) -> list[Tensor]:
    """The output, and the gradients of its mean square for both inputs and every parameter."""
    module.form = form  # type: ignore[assignment]
    d, e = d.clone().requires_grad_(), e.clone().requires_grad_()
    out = module(d, e)
    return [out.detach(), *torch.autograd.grad(out.square().mean(), [d, e, *module.parameters()])]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    size=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    batch=st.integers(1, 3),
    channels=st.sampled_from([1, 4, 9, 24]),
    heads=st.integers(1, 4),
    width=st.sampled_from([1, 4, 8, 32]),
    seed=st.integers(0, 99),
)
def test_the_exact_form_is_the_reference(
    dtype: torch.dtype,
    bound: float,
    size: tuple[int, int],
    batch: int,
    channels: int,
    heads: int,
    width: int,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    module = BidirectionalAttention(channels=channels, heads=heads, head_width=width).to(dtype)
    d, e = torch.randn(2, batch, channels, *size, dtype=dtype)
    for ours, oracle in zip(run(module, "exact", d, e), run(module, "reference", d, e), strict=True):
        assert apart(ours, oracle) <= bound


def test_the_exact_form_is_the_reference_in_three_dimensions() -> None:
    module = BidirectionalAttention(channels=8, spatial_dims=3).double()
    d, e = torch.randn(2, 2, 8, 3, 4, 5, dtype=torch.float64)
    for ours, oracle in zip(run(module, "exact", d, e), run(module, "reference", d, e), strict=True):
        assert apart(ours, oracle) <= 1e-12


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one head, token by token, with the standard library's exponential."""
    rows: list[Tensor] = []
    for query in q:
        weights = [math.exp(float(query @ key) / math.sqrt(len(query))) for key in k]
        rows.append(
            sum((w * value for w, value in zip(weights, v, strict=True)), torch.zeros(v.shape[1])) / sum(weights)
        )
    return torch.stack(rows)


@pytest.mark.parametrize("attend", [exact_attention, reference_attention])
def test_each_direction_against_loops(attend) -> None:
    q, k, v_d, v_e = torch.randn(4, 1, 1, 5, 3)
    r_d, r_e = attend(q, k, v_d, v_e)
    torch.testing.assert_close(r_d[0, 0], by_hand(q[0, 0], k[0, 0], v_e[0, 0]))
    torch.testing.assert_close(r_e[0, 0], by_hand(k[0, 0], q[0, 0], v_d[0, 0]))


@pytest.mark.parametrize("attend", [exact_attention, reference_attention])
def test_softmax_of_the_transposed_matrix_is_normalised_on_its_own_axis(attend) -> None:
    """With V_d = 1 each row of softmax(Sᵀ) V_d is its sum of weights, so 1; softmax(S)ᵀ V_d is not."""
    q, k, v_e = 3 * torch.randn(3, 2, 2, 7, 4)
    ones = torch.ones_like(q)
    _, r_e = attend(q, k, ones, v_e)
    torch.testing.assert_close(r_e, ones)
    transposed = torch.softmax(q @ k.transpose(2, 3) / 2.0, dim=-1).transpose(2, 3) @ ones
    assert (transposed - ones).abs().max() > 0.1


def test_a_closed_gate_leaves_the_sum_bit_for_bit() -> None:
    module = BidirectionalAttention(channels=8)
    torch.nn.init.zeros_(module.gate.score.weight)
    torch.nn.init.constant_(module.gate.score.bias, -1e4)
    d, e = torch.randn(2, 2, 8, 6, 5)
    assert torch.equal(module(d, e), d + e)


def test_the_gate_is_one_scalar_per_sample_from_pooled_maps() -> None:
    gate = ConfidenceGate(channels=8)
    d, e = torch.randn(2, 3, 8, 6, 5)
    c = gate(d, e)
    assert c.shape == (3, 1, 1, 1)
    pooled = torch.cat([e.mean((2, 3)), d.mean((2, 3))], dim=1)
    hidden = torch.relu(pooled @ gate.hidden.weight.flatten(1).T + gate.hidden.bias)
    torch.testing.assert_close(
        c.flatten(), torch.sigmoid(hidden @ gate.score.weight.flatten(1).T + gate.score.bias)[:, 0]
    )


def test_the_norm_is_per_token() -> None:
    norm = ChannelRMSNorm(6)
    x = torch.randn(2, 6, 3, 4) * torch.rand(2, 1, 3, 4) * 9
    torch.testing.assert_close(norm(x).square().mean(1), torch.ones(2, 3, 4), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x.movedim(1, -1), (6,), eps=1e-6).movedim(-1, 1))


def test_the_norm_survives_half_precision() -> None:
    x = torch.full((1, 4, 2, 2), 1000.0)
    out = ChannelRMSNorm(4).half()(x.half())
    assert out.dtype == torch.half
    torch.testing.assert_close(out.float(), torch.ones_like(x), rtol=2e-3, atol=0)


@pytest.mark.parametrize(("channels", "params"), [(24, 9613), (16, 6345), (8, 3141), (4, 1563)])
def test_parameters_of_a_stage(channels: int, params: int) -> None:
    assert count_parameters(BidirectionalAttention(channels=channels)) == params


def test_heads_are_split_and_joined_without_mixing() -> None:
    x = torch.arange(2 * 6 * 2 * 3).float().view(2, 6, 2, 3)
    tokens = split_heads(x, 2)
    assert tokens.shape == (2, 2, 6, 3)
    assert tokens.is_contiguous()
    assert torch.equal(tokens[1, 1, 4], x[1, 3:, 1, 1])
    assert torch.equal(join_heads(tokens, x), x)


def test_no_matrix_of_n_by_n_is_built() -> None:
    """N = 1024 at batch 4: one S alone would be 33.6 MB; forward and backward stay below it."""
    module = BidirectionalAttention(channels=8)
    d, e = torch.randn(2, 4, 8, 32, 32)
    matrix = 4 * 2 * 1024**2 * 4
    assert peak_bytes(lambda: module(d, e).sum().backward()) < matrix
    module.form = "reference"
    assert peak_bytes(lambda: module(d, e).sum().backward()) > 2 * matrix


@pytest.mark.slow
def test_peak_memory_is_twenty_times_below_the_reference() -> None:
    module = BidirectionalAttention(channels=16)
    d, e = torch.randn(2, 16, 16, 64, 64)
    with torch.no_grad():
        exact = peak_bytes(lambda: module(d, e))
        module.form = "reference"
        reference = peak_bytes(lambda: module(d, e))
    assert reference > 16 * 2 * 4096**2 * 4  # the trace sees the N×N matrix
    assert reference / exact >= 20


@pytest.mark.untyped
def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="form must be 'exact' or 'reference', not 'exakt'; did you mean 'exact'"):
        BidirectionalAttention(channels=4, form="exakt")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="heads and head_width must be at least 1, not 0 and 32"):
        BidirectionalAttention(channels=4, heads=0)
