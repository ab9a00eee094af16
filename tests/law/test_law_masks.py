"""Masks on their way to the latents, and the prior for several classes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from laworder.law import LAW, RatioPrior, Uniform
from laworder.law.masks import RESIZES, border_band, latent_mask
from laworder.law.prior import balanced_prior, ratio_prior


def test_nearest_samples_the_centre_and_nearest_corner_the_corner() -> None:
    mask = torch.zeros(1, 1, 32, 32)
    mask[0, 0, 12, 12] = 1  # the centre pixel (index 8i + 4) of cell 1
    mask[0, 0, 16, 16] = 1  # the corner pixel of cell 2
    centre, corner = latent_mask(mask, (4, 4)), latent_mask(mask, (4, 4), resize="nearest_corner")
    assert centre.nonzero().tolist() == [[0, 0, 1, 1]]
    assert corner.nonzero().tolist() == [[0, 0, 2, 2]]


def test_nearest_is_unbiased_and_the_corner_reading_is_not() -> None:
    """Centred discs must stay centred on average; the corner reading moves them by half a cell."""
    y, x = torch.meshgrid(torch.arange(64) - 31.5, torch.arange(64) - 31.5, indexing="ij")
    radii = torch.linspace(6, 28, 100)
    discs = ((x**2 + y**2)[None, None] < radii.view(-1, 1, 1, 1) ** 2).float()
    cells = torch.arange(8) - 3.5

    def centre_of(resize: str) -> float:
        m = latent_mask(discs, (8, 8), resize=resize)[:, 0]
        return float(((m.sum(1) * cells).sum(1) / m.sum((1, 2))).mean())

    assert abs(centre_of("nearest")) < 0.1
    assert centre_of("nearest_corner") == pytest.approx(0.5, abs=0.1)


def test_area_keeps_the_ratio_and_any_loses_no_pixel() -> None:
    mask = torch.zeros(1, 1, 48, 48)
    mask[0, 0, 1, 1] = 1
    assert latent_mask(mask, (6, 6)).sum() == 0
    assert latent_mask(mask, (6, 6), resize="any").sum() == 1
    torch.testing.assert_close(latent_mask(mask, (6, 6), resize="area").mean(), mask.mean())


@pytest.mark.parametrize("resize", sorted(RESIZES))
@pytest.mark.parametrize(
    ("full", "size"), [((7, 9), (3, 4)), ((3, 4), (7, 9)), ((5, 6, 7), (2, 3, 3)), ((8, 8), (8, 8))]
)
def test_any_resolution_reaches_the_grid(resize: str, full: tuple[int, ...], size: tuple[int, ...]) -> None:
    m = latent_mask(torch.ones(2, 3, *full), size, resize=resize)
    assert m.shape == (2, 3, *size)
    assert (m == 1).all()


def test_mask_forms_that_mean_the_same() -> None:
    """Boolean, float, 0/255 float, RGB, and without a channel axis."""
    lesion = torch.zeros(2, 1, 32, 32)
    lesion[:, :, 4:20, 4:20] = 1
    pred, target = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8)
    expected = RatioPrior()(pred, target, lesion)
    for same in (lesion.bool(), lesion * 255, lesion.expand(2, 3, 32, 32), lesion[:, 0], lesion.half()):
        assert torch.equal(RatioPrior()(pred, target, same).weight_map, expected.weight_map)


def test_a_vanished_lesion_is_counted_and_weighs_one() -> None:
    mask = torch.zeros(4, 1, 64, 64)
    mask[0, 0, 1, 1] = 1  # between the sampled points
    mask[1, 0, 20:40, 20:40] = 1
    mask[2, 0, 4, 4] = 1  # on one
    x = torch.randn(4, 4, 8, 8)
    loss = LAW(channels=4)(x, torch.zeros_like(x), mask)
    assert loss.stats["vanished"] == 0.25
    assert loss.stats["uninformative"] == 0.5
    assert (loss.weight_map[0] == 1).all()
    kept = LAW(channels=4, resize="any")(x, torch.zeros_like(x), mask)
    assert kept.stats["vanished"] == 0
    assert kept.stats["uninformative"] == 0.25


def test_half_the_small_lesions_vanish_at_384_to_48() -> None:
    """FACTS: a nearest resize 384 → 48 loses lesions of 3 px radius about half the time; `any` loses none."""
    g = torch.Generator().manual_seed(0)
    centres = torch.rand(400, 2, generator=g) * 300 + 40
    y, x = torch.meshgrid(torch.arange(384.0), torch.arange(384.0), indexing="ij")
    lost = {"nearest": 0, "nearest_corner": 0, "any": 0}
    for cy, cx in centres.tolist():
        mask = ((y - cy) ** 2 + (x - cx) ** 2 <= 9).float()[None, None]
        for resize in lost:
            lost[resize] += int(latent_mask(mask, (48, 48), resize=resize).sum() == 0)
    assert lost["any"] == 0
    assert 0.45 < lost["nearest"] / 400 < 0.65
    assert 0.45 < lost["nearest_corner"] / 400 < 0.65


def test_one_class_is_equation_3_in_both_forms() -> None:
    m = torch.rand(5, 1, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(balanced_prior(m).weights, ratio_prior(m).weights)
    torch.testing.assert_close(
        ratio_prior(m).weights.mean(dim=(1, 2, 3)), 2 * m.mean(dim=(1, 2, 3)) * (1 - m.mean(dim=(1, 2, 3)))
    )


@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_each_present_class_gets_equal_mass(spatial_dims: int) -> None:
    size = (12, 12) if spatial_dims == 2 else (6, 6, 6)
    labels = torch.randint(0, 4, (1, *size)).clamp(min=1) - 1
    labels[:, 0] = 3  # background is class 3 here; class 2 is drawn rarely
    onehot = F.one_hot(labels, 4).movedim(-1, 1).double()
    onehot[:, 2] *= 0  # absent: its pixels become background
    lesions = onehot[:, :3]
    w, informative = balanced_prior(lesions)
    assert informative.all()
    background = 1 - lesions.sum(dim=1, keepdim=True)
    mass = [(w * m).sum().item() for m in (background, lesions[:, :1], lesions[:, 1:2])]
    assert mass == pytest.approx([mass[0]] * 3, rel=1e-12)
    assert (w * lesions[:, 2:]).sum() == 0


def test_overlapping_classes_still_count() -> None:
    """An organ over 90 % of the map, a lesion in it over 80 %: the ratios sum to more than 1."""
    m = torch.zeros(1, 2, 10, 10)
    m[:, 0, :9], m[:, 1, :8] = 1, 1
    w, informative = balanced_prior(m)
    assert informative.all()
    assert (w > 0).all()
    assert w[0, 0, 9, 0] > w[0, 0, 0, 0] > w[0, 0, 8, 0]


def test_several_classes_in_law() -> None:
    mask = torch.zeros(3, 2, 32, 32)
    mask[:2, 0, :8, :8] = 1
    mask[0, 1, 16:20, 16:20] = 1
    pred, target = torch.randn(3, 4, 8, 8), torch.randn(3, 4, 8, 8)
    law = LAW(channels=4, classes=2, w_min=None, w_max=None)
    assert sum(p.numel() for p in law.parameters()) == 11_009 + 32 * 9
    loss = law(pred, target, mask)
    w, m = loss.weight_map[0, 0], F.interpolate(mask, size=(8, 8), mode="nearest-exact")[0]
    masses = [(w * m[0]).sum(), (w * m[1]).sum(), (w * (1 - m.sum(0))).sum()]
    torch.testing.assert_close(torch.stack(masses), torch.full((3,), 64 / 3))
    assert (loss.weight_map[2] == 1).all()
    assert loss.stats["uninformative"].item() == pytest.approx(1 / 3)


def test_a_class_that_vanishes_beside_another_is_counted() -> None:
    mask = torch.zeros(1, 2, 64, 64)
    mask[0, 0, :32, :32] = 1
    mask[0, 1, 41, 41] = 1
    x = torch.randn(1, 4, 8, 8)
    assert Uniform(classes=2)(x, x, mask).stats["vanished"] == 1


@pytest.mark.parametrize("size", [(9, 9), (5, 9, 9)])
def test_border_band_is_one_cell_on_either_side(size: tuple[int, ...]) -> None:
    m = torch.zeros(1, 1, *size)
    m[..., 3:6, 3:6] = 1
    band = border_band(m)[0, 0] == 1
    flat = band if band.ndim == 2 else band[2]
    expected = torch.zeros(9, 9, dtype=torch.bool)
    expected[2:7, 2:7] = True
    expected[4, 4] = False
    assert torch.equal(flat, expected)
    assert not border_band(torch.zeros(1, 1, *size)).any()
    assert not border_band(torch.ones(1, 1, *size)).any()
