"""What must hold for any mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from laworder.law import LAW, OBJECTIVES, objective
from laworder.law.prior import ratio_prior

KINDS = ("empty", "full", "pixel", "hole", "soft", "binary", "tiny", "blob")


def one_mask(kind: str, seed: int, height: int, width: int) -> Tensor:
    """A 1×H×W mask of a named kind."""
    g = torch.Generator().manual_seed(seed)
    row, col = seed % height, (seed // height) % width
    m = torch.rand(1, height, width, generator=g)
    if kind in ("empty", "pixel", "tiny", "blob"):
        m = torch.zeros(1, height, width)
    if kind in ("full", "hole"):
        m = torch.ones(1, height, width)
    if kind == "pixel":
        m[0, row, col] = 1
    elif kind == "hole":
        m[0, row, col] = 0
    elif kind == "tiny":
        m[0, row, col] = 10.0 ** -(seed % 45)
    elif kind == "blob":
        m[0, row : row + height // 3 + 1, col : col + width // 3 + 1] = 1
    elif kind == "binary":
        m = (m > 0.8).float()
    return m


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of mixed kinds at their own resolution, with latents of another."""
    height, width = draw(st.integers(2, 40)), draw(st.integers(2, 40))
    h, w = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    seed = draw(st.integers(0, 10_000))
    mask = torch.stack([one_mask(kind, seed + i, height, width) for i, kind in enumerate(kinds)])
    g = torch.Generator().manual_seed(seed)
    scale = draw(st.sampled_from([1.0, 1e-3, 30.0]))
    return mask, scale * torch.randn(len(kinds), 4, h, w, generator=g), torch.randn(len(kinds), 4, h, w, generator=g)


def shaken(name: str = "law", **more: object) -> torch.nn.Module:
    """An objective whose φ, if any, says something other than ½."""
    made = objective(name, channels=4, **more)
    for phi in (child for child in made.modules() if hasattr(child, "last")):
        torch.nn.init.normal_(phi.last.weight, std=1.0)  # type: ignore[union-attr]
    return made


@settings(max_examples=1000, derandomize=True, deadline=None)
@given(batches(), st.sampled_from(["nearest", "nearest_corner", "area", "any"]), st.sampled_from(["sample", "batch"]))
def test_law_is_always_finite_and_bounded(batch: tuple[Tensor, Tensor, Tensor], resize: str, mean: str) -> None:
    mask, pred, target = batch
    law = shaken(resize=resize, mean=mean)
    pred = pred.requires_grad_()
    loss = law(pred, target, mask)
    loss.total.backward()
    values = [loss.total, *loss.parts.values(), *loss.stats.values(), pred.grad, loss.weight_map]
    values += [p.grad for p in law.parameters()]
    assert all(v is not None and torch.isfinite(v).all() for v in values)
    assert loss.weight_map.min() >= 1e-3
    assert loss.weight_map.max() <= 2.0
    assert loss.weight_map.shape == (len(mask), 1, *pred.shape[2:])


@settings(max_examples=150, derandomize=True, deadline=None)
@given(batches(), st.sampled_from(sorted(OBJECTIVES)))
def test_every_objective_is_finite_equivariant_and_batched(batch: tuple[Tensor, Tensor, Tensor], name: str) -> None:
    mask, pred, target = batch
    teacher = pred.flip(0)
    made = shaken(name)
    with torch.no_grad():
        whole = made(pred, target, mask, teacher=teacher)
        order = torch.randperm(len(mask))
        permuted = made(pred[order], target[order], mask[order], teacher=teacher[order])
        alone = [
            made(pred[i : i + 1], target[i : i + 1], mask[i : i + 1], teacher=teacher[i : i + 1])
            for i in range(len(mask))
        ]
    assert torch.isfinite(whole.total)
    torch.testing.assert_close(permuted.weight_map, whole.weight_map[order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(permuted.total, whole.total, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(torch.cat([x.weight_map for x in alone]), whole.weight_map, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.stack([x.total for x in alone]).mean(), whole.total, rtol=1e-4, atol=1e-6)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(batches())
def test_gamma_zero_is_exactly_the_clamped_normalised_prior(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    mask, pred, target = batch
    w = shaken(gamma=0.0)(pred, target, mask).weight_map
    start = LAW(channels=4)(pred, target, mask)
    m = F.interpolate(mask, size=pred.shape[2:], mode="nearest-exact").clamp(0, 1)
    ratio, informative = ratio_prior(m)
    expected = (ratio / ratio.mean(dim=(1, 2, 3), keepdim=True)).clamp(1e-3, 2.0)
    assert (expected[~informative.flatten()] == 1).all()
    assert torch.equal(w, expected)
    # At the zero start δ is ½ and μ is 1, so w is the pure prior for any γ.
    assert torch.equal(start.weight_map, expected)
    assert start.delta is not None
    assert (start.delta == 0.5).all()


@pytest.mark.parametrize("fill", [0.0, 1.0])
@pytest.mark.parametrize("name", ["ratio", "distillation", "law", "law_no_norm", "law_no_max"])
def test_empty_and_full_masks_weigh_one(name: str, fill: float) -> None:
    pred, target = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8)
    loss = shaken(name)(pred, target, torch.full((2, 1, 64, 64), fill), teacher=pred)
    assert (loss.weight_map == 1).all()
    torch.testing.assert_close(loss.parts["denoise"], F.mse_loss(pred, target))
    assert loss.stats["uninformative"] == 1


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("mean", ["sample", "batch"])
def test_gradcheck(detach: bool, mean: str) -> None:
    """Numeric gradients with respect to φ, and to the prediction where φ may send one back."""
    law = LAW(channels=2, hidden=3, w_max=None, detach=detach, mean=mean, diagnostics=False).double()
    torch.nn.init.normal_(law.phi.last.weight)
    target = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    mask = torch.zeros(3, 1, 3, 3, dtype=torch.float64)
    mask[0, 0, 1, 1], mask[1, 0, :2] = 1, 0.6
    names, values = zip(*law.named_parameters(), strict=True)
    pred = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=not detach)

    def total(pred: Tensor, *params: Tensor) -> Tensor:
        return torch.func.functional_call(law, dict(zip(names, params, strict=True)), (pred, target, mask)).total

    assert torch.autograd.gradcheck(total, (pred, *values))


def test_detach_keeps_the_dice_gradient_from_the_denoiser() -> None:
    mask = torch.zeros(2, 1, 16, 16)
    mask[:, :, 4:8, 4:8] = 1
    target = torch.randn(2, 4, 16, 16)
    for detach in (True, False):
        pred = torch.randn(2, 4, 16, 16, requires_grad=True)
        loss = shaken(detach=detach)(pred, target, mask)
        (reached,) = torch.autograd.grad(loss.parts["dice"], pred, allow_unused=True)
        assert (reached is None) == detach
        if reached is not None:
            assert reached.abs().sum() > 0


def test_gradient_flows_through_the_mean() -> None:
    """If mean(w_adapt) were a constant, a common shift of δ would change the loss; through the mean it cancels."""
    law = LAW(channels=4, w_min=None, w_max=None, dice_weight=0.0).double()
    pred, target = torch.randn(1, 4, 8, 8).double(), torch.randn(1, 4, 8, 8).double()
    mask = torch.zeros(1, 1, 8, 8).double()
    mask[..., 2:4, 2:4] = 1
    law(pred, target, mask).total.backward()
    assert law.phi.last.bias is not None
    assert law.phi.last.bias.grad is not None
    assert law.phi.last.bias.grad.abs().max() < 1e-12
    assert law.phi.last.weight.grad is not None
    assert law.phi.last.weight.grad.abs().max() > 1e-6


def test_training_phi_draws_delta_to_the_mask() -> None:
    law = LAW(channels=4)
    optimiser = torch.optim.Adam(law.parameter_groups(lr=1e-2))
    mask = torch.zeros(4, 1, 16, 16)
    mask[:, :, 3:7, 5:9] = 1
    found = []
    for _ in range(40):
        loss = law(torch.randn(4, 4, 16, 16), torch.randn(4, 4, 16, 16), mask)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        found.append(loss.stats["delta_mask_correlation"].item())
    assert found[0] == 0
    assert found[-1] > 0.8
