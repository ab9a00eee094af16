"""Every equation of section 3.1.2 against a loop in float64."""

from __future__ import annotations

import law_oracle as oracle
import pytest
import torch
from torch import Tensor

from laworder.law import LAW, ConstantWeight, Distillation, RatioPrior, Uniform, objective


def grids(x: Tensor) -> list[list[list[float]]]:
    """[b, c, *] → nested lists, spatial axes flattened."""
    return x.detach().flatten(2).tolist()


def a_batch(*, b: int = 3, c: int = 4, size: tuple[int, ...] = (6, 5)) -> tuple[Tensor, Tensor, Tensor]:
    pred = torch.randn(b, c, *size, dtype=torch.float64)
    target = torch.randn(b, c, *size, dtype=torch.float64)
    mask = (torch.rand(b, 1, *size, dtype=torch.float64) > 0.7).double()
    mask[0] *= 0.3 + 0.7 * torch.rand(1, *size, dtype=torch.float64)  # a soft one
    return pred, target, mask


def trained(**settings: object) -> LAW:
    """A LAW in float64 whose φ is no longer at its zero start."""
    law = LAW(channels=4, **settings).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(law.phi.last.weight, std=0.3)
    return law


def phi_logits(law: LAW, pred: Tensor, m: Tensor) -> Tensor:
    """φ spelled out with torch's functional convolutions on (f_t, m)."""
    p = dict(law.phi.named_parameters())
    names = sorted({name.rsplit(".", 1)[0] for name in p if name.startswith("layers")})
    conv = torch.nn.functional.conv2d if pred.ndim == 4 else torch.nn.functional.conv3d
    x = torch.cat([pred, m], dim=1)
    for i, name in enumerate(names):
        x = conv(x, p[f"{name}.weight"], p[f"{name}.bias"], padding=1)
        if i < 2:
            x = x * torch.sigmoid(x)
    return x


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gamma": 0.7, "tau": 0.5},
        {"w_max": None},
        {"w_min": None, "w_max": None},
        {"w_min": 0.6, "w_max": 1.3},
        {"normalise": False, "w_min": None},
        {"dice_weight": 0.25},
    ],
)
def test_law_is_its_equations(settings: dict[str, object], spatial_dims: int) -> None:
    law = trained(**settings, spatial_dims=spatial_dims)
    pred, target, mask = a_batch(size=(6, 5) if spatial_dims == 2 else (3, 4, 5))
    loss = law(pred, target, mask)
    logits = grids(phi_logits(law, pred, mask))
    denoise, dice = [], []
    for b, (p, t, (m,)) in enumerate(zip(grids(pred), grids(target), grids(mask), strict=True)):
        d = oracle.delta(logits[b][0], law.tau)
        w = oracle.law_weights(m, d, gamma=law.gamma, w_min=law.w_min, w_max=law.w_max, norm=law.normalise)
        assert loss.delta is not None
        torch.testing.assert_close(loss.delta[b].flatten(), torch.tensor(d, dtype=torch.float64))
        torch.testing.assert_close(loss.weight_map[b].flatten(), torch.tensor(w, dtype=torch.float64))
        denoise.append(oracle.weighted_error(w, p, t))
        dice.append(oracle.dice(d, m))
    l_s, l_dice = sum(denoise) / len(denoise), sum(dice) / len(dice)
    assert loss.parts["denoise"].item() == pytest.approx(l_s, rel=1e-12)
    assert loss.parts["dice"].item() == pytest.approx(l_dice, rel=1e-12)
    assert loss.total.item() == pytest.approx(l_s + law.dice_weight * l_dice, rel=1e-12)


def test_batch_mean_pools_the_informative_samples() -> None:
    law = trained(mean="batch", w_min=None, w_max=None)
    pred, target, mask = a_batch()
    mask[1] = 0
    w = law(pred, target, mask).weight_map
    adapted = []
    for b in (0, 2):
        d = oracle.delta(grids(phi_logits(law, pred, mask))[b][0], law.tau)
        adapted.append(oracle.law_weights(grids(mask)[b][0], d, w_min=None, w_max=None, norm=False))
    mean = (sum(adapted[0]) + sum(adapted[1])) / (2 * len(adapted[0]))
    for b, values in zip((0, 2), adapted, strict=True):
        torch.testing.assert_close(w[b].flatten(), torch.tensor([x / mean for x in values], dtype=torch.float64))
    assert (w[1] == 1).all()


def test_renormalise_brings_the_mean_back_to_one() -> None:
    pred, target, mask = a_batch()
    plain, again = LAW(channels=4).double(), LAW(channels=4, renormalise=True).double()
    w, w1 = plain(pred, target, mask).weight_map, again(pred, target, mask).weight_map
    means = w.mean(dim=(1, 2, 3), keepdim=True)
    assert (means < 0.999).any()
    torch.testing.assert_close(w1, w / means)


def test_uniform_is_mse() -> None:
    pred, target, mask = a_batch()
    loss = Uniform()(pred, target, mask)
    torch.testing.assert_close(loss.total, torch.nn.functional.mse_loss(pred, target))
    assert (loss.weight_map == 1).all()


def test_ratio_is_equation_3_as_it_is() -> None:
    pred, target, mask = a_batch()
    loss = RatioPrior()(pred, target, mask)
    expected = []
    for b, (p, t, (m,)) in enumerate(zip(grids(pred), grids(target), grids(mask), strict=True)):
        w = oracle.ratio_prior(m)
        torch.testing.assert_close(loss.weight_map[b].flatten(), torch.tensor(w, dtype=torch.float64))
        expected.append(oracle.weighted_error(w, p, t))
    assert loss.total.item() == pytest.approx(sum(expected) / 3, rel=1e-12)


def test_constant_weighs_lesion_pixels_alone() -> None:
    pred, target, mask = a_batch()
    loss = ConstantWeight(weight=5.0)(pred, target, mask)
    for b, (m,) in enumerate(grids(mask)):
        expected = torch.tensor([1 + 4 * x for x in m], dtype=torch.float64)
        torch.testing.assert_close(loss.weight_map[b].flatten(), expected)


def test_distillation_is_its_three_terms_and_stops_the_gradient() -> None:
    pred, target, mask = a_batch()
    teacher = torch.randn_like(pred)
    pred.requires_grad_()
    teacher.requires_grad_()
    loss = Distillation()(pred, target, mask, teacher=teacher)
    terms = {"denoise": 0.0, "teacher": 0.0, "distill": 0.0}
    for p, t, e, (m,) in zip(grids(pred), grids(target), grids(teacher), grids(mask), strict=True):
        ones = [1.0] * len(m)
        terms["denoise"] += oracle.weighted_error(ones, p, t) / 3
        terms["teacher"] += oracle.weighted_error(ones, e, t) / 3
        terms["distill"] += oracle.weighted_error(oracle.ratio_prior(m), p, e) / 3
    for name, value in terms.items():
        assert loss.parts[name].item() == pytest.approx(value, rel=1e-12)
    assert loss.total.item() == pytest.approx(sum(terms.values()), rel=1e-12)
    (from_distill,) = torch.autograd.grad(loss.parts["distill"], teacher, allow_unused=True, retain_graph=True)
    assert from_distill is None
    (of_teacher,) = torch.autograd.grad(loss.total, teacher)
    torch.testing.assert_close(of_teacher, 2 * (teacher - target).detach() / teacher.numel())


def test_phi_has_the_papers_size() -> None:
    assert sum(p.numel() for p in LAW(channels=4).parameters()) == 11_009


@pytest.mark.parametrize(("r", "mean", "saturated"), [(0.005, 0.51, 1.0), (0.07, 0.64, 1.0), (0.30, 1.0, 0.0)])
def test_saturation_and_mean_weight(r: float, mean: float, saturated: float) -> None:
    """At δ = ½: lesion 1/(2r), background 1/(2(1 − r)); below r = ¼ the mean after the clamp is 2r + ½."""
    mask = (torch.arange(10_000).view(1, 1, 100, 100) < r * 10_000).float()
    x = torch.randn(1, 4, 100, 100)
    stats = LAW(channels=4)(x, torch.zeros_like(x), mask).stats
    closed_form = 2 * r + 0.5 if r < 0.25 else 1.0
    assert closed_form == pytest.approx(mean, rel=1e-9)
    assert stats["w_mean"].item() == pytest.approx(mean, rel=0.01)
    assert stats["saturated"].item() == saturated
    assert stats["lesion_ratio"].item() == pytest.approx(r, rel=1e-4)


def test_batch_wide_mean_starves_the_background_of_a_small_lesion() -> None:
    """Why the mean is per sample: one large neighbour pushes the small lesion's background to about 0.1 and below."""
    mask = torch.zeros(2, 1, 48, 48)
    mask[0, :, 10:14, 10:14] = 1
    mask[1, :, :, :20] = 1
    x = torch.randn(2, 4, 48, 48)
    per_sample = LAW(channels=4)(x, torch.zeros_like(x), mask).weight_map[0, 0, 0, 0]
    per_batch = LAW(channels=4, mean="batch")(x, torch.zeros_like(x), mask).weight_map[0, 0, 0, 0]
    assert per_sample > 0.5
    assert per_batch < 0.1


def test_table_8_by_name() -> None:
    rows = ["distillation", "law_no_norm", "law_norm", "law_norm_min", "law", "law_no_max"]
    pred, target, mask = (x.float() for x in a_batch())
    mask = (mask > 0.5).float()
    mask[:] = 0
    mask[:, :, 2, 2:4] = 1
    found = {}
    for row in rows:
        found[row] = objective(row, channels=4)(pred, target, mask, teacher=pred)
    assert found["law_no_norm"].weight_map.max() < 1
    assert found["law_norm"].weight_map.max() == 2
    assert found["law_no_max"].weight_map.max() > 2
    for row in rows[1:4]:
        assert found[row].total == found[row].parts["denoise"]
    for row in rows[4:]:
        assert found[row].total == found[row].parts["denoise"] + found[row].parts["dice"]
    no_min, with_min = objective("law_norm", channels=4), objective("law_norm_min", channels=4)
    assert (no_min.w_min, with_min.w_min) == (None, 1e-3)
