"""ORDER: its counts, its settings, its sizes and its refusals."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order import ORDER, BidirectionalAttention
from laworder.order.base import pad_to_multiple
from laworder.segmenters.profile import count_parameters


@pytest.mark.parametrize(
    ("stages", "params"),
    [
        ((), 26_307),
        ((0, 1), 42_265),
        ((1, 2), 35_793),
        ((2, 3), 31_011),
        ((0, 1, 2, 3), 46_969),
        ((3,), 26_307 + 1_563),
    ],
)
def test_parameters(stages: tuple[int, ...], params: int) -> None:
    assert count_parameters(ORDER(stages=stages)) == params


def test_every_subset_of_stages_carries_attention_exactly_there() -> None:
    for n in range(5):
        for stages in itertools.combinations(range(4), n):
            found = [s for s, skip in enumerate(ORDER(stages=stages).skips) if isinstance(skip, BidirectionalAttention)]
            assert found == list(stages)


def test_closed_gates_give_the_additive_backbone_bit_for_bit() -> None:
    model = ORDER(stages=(0, 1, 2, 3)).eval()
    for skip in model.skips:
        torch.nn.init.zeros_(skip.gate.score.weight)
        torch.nn.init.constant_(skip.gate.score.bias, -1e4)
    backbone = ORDER(stages=()).eval()
    missing, _ = backbone.load_state_dict(model.state_dict(), strict=False)
    assert not missing
    x = torch.randn(2, 3, 64, 96)
    assert torch.equal(model(x), backbone(x))


def test_open_gates_do_not() -> None:
    model = ORDER().train()
    backbone = ORDER(stages=()).train()
    backbone.load_state_dict(model.state_dict(), strict=False)
    x = torch.randn(2, 3, 64, 64)
    assert not torch.allclose(model(x), backbone(x))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(height=st.integers(33, 200), width=st.integers(33, 200))
def test_any_size_comes_back(height: int, width: int) -> None:
    assert ORDER().eval()(torch.randn(1, 3, height, width)).shape == (1, 1, height, width)


@pytest.mark.parametrize("size", [(33, 1025), (1025, 40)])
def test_long_sizes_come_back(size: tuple[int, int]) -> None:
    with torch.inference_mode():
        assert ORDER().eval()(torch.randn(1, 3, *size)).shape == (1, 1, *size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1025, 1025), (1000, 777)])
def test_large_sizes_come_back(size: tuple[int, int]) -> None:
    with torch.inference_mode():
        out = ORDER().eval()(torch.randn(1, 3, *size))
    assert out.shape == (1, 1, *size)
    assert out.isfinite().all()


def test_odd_sizes_are_padded_by_repeating_the_edge_and_cropped() -> None:
    model = ORDER().train()
    x = torch.randn(2, 3, 50, 70)
    model(x)
    model.eval()
    padded = F.pad(x, (0, 26, 0, 14), mode="replicate")
    assert torch.equal(model(x), model.logits(padded)[..., :50, :70])


def test_sizes_that_fit_are_untouched() -> None:
    x = torch.randn(2, 3, 64, 96)
    assert pad_to_multiple(x, 32) is x
    model = ORDER().eval()
    assert torch.equal(model(x), model.logits(x))


@pytest.mark.parametrize(
    "setting",
    [
        {"in_channels": 1},
        {"in_channels": 5},
        {"classes": 4},
        {"widths": (6, 10, 14)},
        {"widths": (3, 5, 7, 9, 11, 13), "stages": (4,)},
        {"widths": (8, 8)},
        {"heads": 3, "head_width": 5},
        {"attention_width": 48, "heads": 4},
        {"expansion": 3, "kernels": (3, 7)},
        {"form": "reference"},
    ],
)
def test_settings(setting: dict) -> None:
    if len(setting.get("widths", (0,) * 5)) < 3:
        setting = setting | {"stages": (0,)}
    model = ORDER(**setting)
    x = torch.randn(2, model.in_channels, 70, 64)
    assert model(x).shape == (2, model.classes, 70, 64)


def test_three_dimensions() -> None:
    model = ORDER(spatial_dims=3, in_channels=1, classes=2).train()
    x = torch.randn(2, 1, 33, 40, 64)
    out = model(x)
    assert out.shape == (2, 2, 33, 40, 64)
    out.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_three_dimensional_blocks_see_the_third_axis() -> None:
    model = ORDER(spatial_dims=3, in_channels=1, widths=(4, 8), stages=(0,)).eval()
    x = torch.randn(1, 1, 8, 8, 8)
    assert not torch.allclose(model(x), model(x.flip(2)).flip(2)), "k³ kernels with random taps are not symmetric"
    assert model.encoder[0].depthwise[1][0].weight.shape[2:] == (3, 3, 3)


def test_probabilities() -> None:
    x = torch.randn(2, 3, 64, 64)
    one, many = ORDER().eval(), ORDER(classes=3).eval()
    assert torch.equal(one.probabilities(x), torch.sigmoid(one(x)))
    torch.testing.assert_close(many.probabilities(x).sum(1), torch.ones(2, 64, 64))


@pytest.mark.parametrize("form", ["exact", "reference"])
def test_the_form_changes_no_parameter_and_no_result(form: str) -> None:
    torch.manual_seed(1)
    model, other = ORDER(form=form).double(), ORDER().double()  # type: ignore[arg-type]
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(model(x), other(x), rtol=0, atol=1e-12)


def test_mixed_precision() -> None:
    model = ORDER().train()
    x = torch.randn(4, 3, 64, 64)
    full = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(x)
        mixed.float().square().mean().backward()
    assert mixed.dtype == torch.bfloat16
    assert torch.cosine_similarity(mixed.float().flatten(), full.flatten(), dim=0) > 0.98
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_state_survives_a_round_trip(tmp_path) -> None:
    model = ORDER().train()
    x = torch.randn(2, 3, 64, 64)
    model(x)
    torch.save(model.state_dict(), tmp_path / "order.pt")
    other = ORDER()
    other.load_state_dict(torch.load(tmp_path / "order.pt", weights_only=True))
    assert torch.equal(model.eval()(x), other.eval()(x))


@pytest.mark.slow
def test_the_compiler_sees_one_graph_for_any_size() -> None:
    """No Python branch depends on the data: torch.export traces it whole, with free height and width."""
    model = ORDER().eval()
    free = {2: 32 * torch.export.Dim("h", min=2, max=16), 3: 32 * torch.export.Dim("w", min=2, max=16)}

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model.logits(x)

    program = torch.export.export(Logits(), (torch.randn(1, 3, 64, 96),), dynamic_shapes={"x": free})
    x = torch.randn(1, 3, 128, 160)
    torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"stages": (4,)}, r"stages: 4 is no skip stage; allowed are any of \[0, 1, 2, 3\]"),
        ({"stages": (-1,)}, r"stages: -1 is no skip stage"),
        ({"stages": (1, 1)}, r"stages: \[1, 1\] names a stage twice"),
        ({"widths": (4,)}, r"widths must hold two or more channel counts of at least 1, not \[4\]"),
        ({"widths": (4, 0, 8)}, r"widths must hold two or more"),
        ({"heads": 0}, "heads and head_width must be at least 1, not 0 and 32"),
        (
            {"heads": 3, "attention_width": 64},
            r"heads=3 does not divide attention_width=64; .* \[1, 2, 4, 8, 16",
        ),
        ({"form": "fast"}, "form must be 'exact' or 'reference', not 'fast'"),
        ({"in_channels": 0}, "in_channels must be at least 1, not 0"),
        ({"classes": 0}, "classes must be at least 1"),
        ({"spatial_dims": 1}, "spatial_dims must be 2 or 3, not 1"),
        ({"kernels": (2,)}, r"kernels must be odd numbers of at least 1, not \[2\]"),
        ({"expansion": 0}, "expansion must be at least 1, not 0"),
    ],
)
def test_bad_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ORDER(**setting)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 64, 64), r"x must have 4 axes \(batch, channels, height, width\), not 3"),
        (torch.zeros(1, 1, 64, 64), "x must have 3 channels on axis 1"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "x must be floating point"),
    ],
)
def test_bad_inputs_are_named(x: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ORDER()(x)


def test_constructors_take_keywords_only() -> None:
    with pytest.raises(TypeError):
        ORDER(3)  # type: ignore[misc]
