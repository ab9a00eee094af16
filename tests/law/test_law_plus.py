"""LAW+: the budget, the bounds, and what δ learns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from laworder.errors import UserError
from laworder.law import LAW, LawPlus


def square(side: int, *, size: int = 32) -> Tensor:
    mask = torch.zeros(1, 1, size, size, dtype=torch.float64)
    mask[..., 4 : 4 + side, 4 : 4 + side] = 1
    return mask


def shaken(**settings: object) -> LawPlus:
    law = LawPlus(channels=4, **settings).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(law.phi.last.weight, std=1.0)
    return law


def noise(like: Tensor) -> tuple[Tensor, Tensor]:
    pred, target = torch.randn(2, like.shape[0], 4, *like.shape[2:], dtype=torch.float64).unbind(0)
    return pred, target


def by_hand(law: LawPlus, m: list[float], d: list[float], band: list[float]) -> list[float]:
    """The module's formula in a loop, for one sample."""
    n = len(m)
    r = sum(m) / n
    slope = law.w_max * (1 - law.gamma) / (1 + law.gamma)
    beta = min(max(law.share, r), slope * r)
    mu = [x * (1 + law.gamma * (2 * y - 1)) for x, y in zip(m, d, strict=True)]
    nu = [(1 - x) * (1 + law.border * y) for x, y in zip(m, band, strict=True)]
    return [beta * n * u / sum(mu) + (1 - beta) * n * v / sum(nu) for u, v in zip(mu, nu, strict=True)]


@pytest.mark.parametrize("side", [1, 2, 6, 20, 30])
def test_weights_are_the_formula(side: int) -> None:
    law, mask = shaken(), square(side)
    loss = law(*noise(mask), mask)
    grown = torch.nn.functional.max_pool2d(mask, 3, stride=1, padding=1)
    eaten = -torch.nn.functional.max_pool2d(-mask, 3, stride=1, padding=1)
    band = grown - eaten
    assert loss.delta is not None
    expected = by_hand(law, *(x.flatten().tolist() for x in (mask, loss.delta, band)))
    torch.testing.assert_close(loss.weight_map.flatten(), torch.tensor(expected, dtype=torch.float64))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 24), st.booleans(), st.floats(0.05, 0.95), st.floats(0.05, 0.9))
def test_mean_is_one_and_no_weight_exceeds_the_bound(
    seed: int, size: int, soft: bool, share: float, gamma: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(3, 1, size, size, generator=g, dtype=torch.float64)
    mask = torch.where(mask > 0.8, mask if soft else 1.0, 0.0)
    law = shaken(share=share, gamma=gamma, w_max=40.0)
    loss = law(*noise(mask), mask)
    torch.testing.assert_close(loss.weight_map.mean(dim=(1, 2, 3)), torch.ones(3, dtype=torch.float64))
    assert loss.weight_map.min() > 0
    assert loss.weight_map.max() <= 40.0 + 1e-9
    loss.total.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in law.parameters())


def test_budget() -> None:
    """The lesion's share of all weight: `share` where the bound allows, w_max-limited below, its own area above."""
    law = LawPlus(channels=4, share=0.5, gamma=0.5, w_max=9.0).double()
    for side, expected in ((1, 3 / 1024), (8, 3 * 64 / 1024), (16, 0.5), (28, 784 / 1024)):
        mask = square(side)
        w = law(*noise(mask), mask).weight_map
        assert (w * mask).sum().item() / 1024 == pytest.approx(expected, rel=1e-12)


def test_delta_has_a_say_inside_small_lesions_where_law_saturates() -> None:
    mask = square(3)
    paper = LAW(channels=4).double()
    torch.nn.init.normal_(paper.phi.last.weight, std=1.0)
    inside = mask == 1
    assert paper(*noise(mask), mask).weight_map[inside].std() == 0
    assert shaken()(*noise(mask), mask).weight_map[inside].std() > 0


def test_border_is_lifted_in_the_background_only() -> None:
    mask = square(6)
    w = LawPlus(channels=4, border=0.5).double()(*noise(mask), mask).weight_map[0, 0]
    assert (w[3, 4] / w[20, 20]).item() == pytest.approx(1.5, rel=1e-12)
    assert w[2, 4] == w[20, 20]
    assert w[4, 4] == w[6, 6]


def test_only_the_fit_moves_phi_and_only_the_denoising_the_denoiser() -> None:
    law, mask = shaken(), square(5)
    pred, target = noise(mask)
    pred.requires_grad_()
    loss = law(pred, target, mask)
    params = list(law.parameters())
    assert not any(
        g is not None for g in torch.autograd.grad(loss.parts["denoise"], params, allow_unused=True, retain_graph=True)
    )
    (of_fit,) = torch.autograd.grad(loss.parts["fit"], pred, allow_unused=True, retain_graph=True)
    assert of_fit is None
    (grad,) = torch.autograd.grad(loss.parts["denoise"], pred)
    torch.testing.assert_close(grad, 2 * loss.weight_map * (pred - target).detach() / pred.numel())


def test_delta_learns_where_the_error_is() -> None:
    """The denoiser errs twice as much (in squares, nine times) in one half of the lesion: the budget moves there."""
    law = LawPlus(channels=4)
    optimiser = torch.optim.Adam(law.parameter_groups(lr=1e-2))
    mask = torch.zeros(4, 1, 16, 16)
    mask[:, :, 4:12, 4:12] = 1
    scale = torch.ones(16)
    scale[8:] = 3.0
    for _ in range(80):
        pred = torch.randn(4, 4, 16, 16) * scale
        loss = law(pred, torch.zeros_like(pred), mask)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    w = loss.weight_map[:, :, 4:12]
    assert w[..., 8:12].mean() > 1.5 * w[..., 4:8].mean()


def test_time_is_a_channel_of_its_own() -> None:
    mask = square(5).repeat(2, 1, 1, 1)
    pred, target = noise(mask)
    pred[1], target[1] = pred[0], target[0]
    law = shaken(time=True)
    loss = law(pred, target, mask, time=torch.tensor([0.1, 0.9]))
    assert loss.delta is not None
    assert not torch.equal(loss.delta[0], loss.delta[1])
    with pytest.raises(UserError, match="needs the diffusion time"):
        law(pred, target, mask)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"share": 1.0}, "share"),
        ({"gamma": 0.0}, "gamma"),
        ({"border": -1.0}, "border"),
        ({"border_width": 0}, "border_width"),
        ({"w_max": 2.0}, "w_max must be at least 3"),
        ({"tau": 0.0}, "tau"),
        ({"fit_weight": -1.0}, "fit_weight"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        LawPlus(channels=4, **settings)  # type: ignore[arg-type]
