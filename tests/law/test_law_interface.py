"""Names, messages, diagnostics and optimiser groups."""

from __future__ import annotations

import re

import pytest
import torch

import laworder
from laworder.errors import UserError
from laworder.law import ABLATION, LAW, OBJECTIVES, Uniform, list_objectives, objective, strip
from laworder.law.diagnostics import correlation


def test_public_names_are_those_of_the_package() -> None:
    assert laworder.LAW is LAW
    assert laworder.Uniform is Uniform
    assert set(list_objectives()) == {*OBJECTIVES, *ABLATION}


@pytest.mark.parametrize("name", list_objectives())
@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_every_name_trains_a_step(name: str, spatial_dims: int) -> None:
    made = objective(name, channels=3, spatial_dims=spatial_dims)
    size = (8, 8) if spatial_dims == 2 else (4, 8, 8)
    pred = torch.randn(2, 3, *size, requires_grad=True)
    mask = torch.zeros(2, 1, *size)
    mask[..., 2:4, 2:4] = 1
    loss = made(pred, torch.randn_like(pred), mask, teacher=torch.randn_like(pred))
    loss.total.backward()
    assert pred.grad is not None
    assert pred.grad.abs().sum() > 0
    assert "denoise" in loss.parts
    assert loss.weight_map.shape == (2, 1, *size)
    assert all(p.grad is not None for p in made.parameters())
    assert not loss.weight_map.requires_grad
    assert not any(value.requires_grad for value in loss.stats.values())
    assert all(value.shape == () for value in (*loss.stats.values(), *loss.parts.values()))


def test_optimiser_groups() -> None:
    law = LAW(channels=4)
    (group,) = law.parameter_groups(lr=1e-3)
    assert group["lr"] == 1e-3
    assert sum(p.numel() for p in group["params"]) == 11_009
    assert "lr" not in law.parameter_groups()[0]
    assert Uniform().parameter_groups(lr=1.0) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gamma": 1.0}, "gamma must lie in [0, 1)"),
        ({"tau": 0.0}, "tau must be above 0"),
        ({"dice_weight": -1.0}, "dice_weight"),
        ({"w_min": 1.5}, "w_min"),
        ({"w_max": 0.5}, "w_max"),
        ({"hidden": 0}, "hidden"),
        ({"mean": "batches"}, "mean is 'batches'; did you mean 'batch'?"),
        ({"resize": "nearst"}, "resize is 'nearst'; did you mean 'nearest'?"),
        ({"spatial_dims": 1}, "spatial_dims must be 2 or 3"),
        ({"classes": 0}, "classes"),
        ({"channels": 0}, "channels"),
        ({"gama": 0.1}, "gama"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        objective("law", **{"channels": 4, **settings})  # type: ignore[arg-type]


def test_unknown_objectives_are_answered() -> None:
    with pytest.raises(UserError, match="did you mean 'uniform'"):
        objective("unifrom", channels=4)
    with pytest.raises(UserError, match="weight"):
        objective("constant", channels=4, weight=0.0)


@pytest.mark.untyped
def test_bad_input_is_named() -> None:
    x, mask = torch.randn(2, 4, 8, 8), torch.zeros(2, 1, 8, 8)
    law = LAW(channels=4)
    bad = [
        ((x[0], x[0], mask), {}, "pred must have 4 axes"),
        ((x[:, :3], x[:, :3], mask), {}, "pred has 3 channels"),
        ((x.int(), x, mask), {}, "floating point"),
        ((x, x[:1], mask), {}, "target must have pred's shape"),
        ((x, x, mask), {"teacher": x[:1]}, "teacher must have pred's shape"),
        ((x, x, mask[:1]), {}, "mask holds 1 samples, but pred 2"),
        ((x, x, mask.to(torch.uint8)), {}, "mask > 127"),
        ((x, x, mask[0, 0]), {}, "mask must have 4 axes"),
        ((x, x, mask), {"time": torch.ones(2, 1)}, "time must be one number per sample"),
    ]
    for args, kwargs, words in bad:
        with pytest.raises(UserError, match=re.escape(words)):
            law(*args, **kwargs)
    with pytest.raises(UserError, match="built with classes=2"):
        LAW(channels=4, classes=2)(x, x, mask)
    with pytest.raises(UserError, match=r"teacher=\.\.\."):
        objective("distillation", channels=4)(x, x, mask)


def test_stats_say_where_the_error_is() -> None:
    mask = torch.zeros(1, 1, 9, 9)
    mask[..., 3:6, 3:6] = 1
    pred = torch.zeros(1, 4, 9, 9)
    pred[..., 4, 4] = 3.0  # error 9 in the middle, inside but not on the border
    pred[..., 0, 0] = 2.0  # error 4 in a far corner
    stats = LAW(channels=4)(pred, torch.zeros_like(pred), mask).stats
    assert stats["error_inside"].item() == pytest.approx(9 / 9)
    assert stats["error_outside"].item() == pytest.approx(4 / 72)
    assert stats["error_border"].item() == 0
    assert stats["lesion_ratio"].item() == pytest.approx(1 / 9)
    assert stats["w_min"] < stats["w_mean"] < stats["w_max"]
    assert stats["delta_mean"] == 0.5


def test_saturation_counts_lesion_pixels_only() -> None:
    """A large lesion (r > ½) saturates the background; that is not what `saturated` tells."""
    mask = torch.ones(1, 1, 20, 20)
    mask[..., :2, :] = 0
    x = torch.randn(1, 4, 20, 20)
    loss = LAW(channels=4)(x, x, mask)
    assert loss.weight_map[..., :2, :].min() == 2
    assert loss.stats["saturated"] == 0
    assert LAW(channels=4, w_max=None)(x, x, 1 - mask).stats["saturated"] == 0


def test_diagnostics_can_be_left_out() -> None:
    x = torch.randn(1, 4, 4, 4)
    loss = LAW(channels=4, diagnostics=False)(x, x, x[:, :1] > 0)
    assert loss.stats == {}
    assert loss.delta is not None


def test_correlation_is_pearsons() -> None:
    a, b = torch.randn(2, 3, 1, 5, 6)
    torch.testing.assert_close(correlation(a, b), torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])
    assert correlation(a, torch.ones_like(a)) == 0


def test_strip_lays_out_rows_and_columns() -> None:
    mask, delta = torch.zeros(3, 1, 4, 5), torch.full((3, 1, 4, 5), 0.5)
    mask[1] = 1
    sheet = strip(mask, delta, zoom=2, gap=1)
    assert sheet.dtype == torch.uint8
    assert sheet.shape == (2 * (4 * 2 + 2), 3 * (5 * 2 + 2))
    assert sheet[5, 5] == 0
    assert sheet[5, 17] == 255
    assert sheet[15, 5] == 128
    assert sheet[0, 0] == 255
