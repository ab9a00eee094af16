"""Lesion statistics of pictures whose answer is known, and Wasserstein's distance against SciPy's."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from laworder.errors import UserError
from laworder.metrics.realism import STATISTICS, distance, spectral_slope, statistics, wasserstein

SIDE = 64


def disc(radius: float = 14) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    return ((y - 32) ** 2 + (x - 30) ** 2 <= radius**2).to(torch.uint8)[None, None]


def picture(inside: float, around: float, noise: float = 0.0, channels: int = 1) -> torch.Tensor:
    level = torch.where(disc() > 0, inside, around).expand(1, channels, SIDE, SIDE)
    draws = torch.randn(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    return (255 * (level + noise * draws)).clamp(0, 255).round().to(torch.uint8)


def test_a_flat_disc_on_a_flat_ground() -> None:
    found = {name: float(value) for name, value in statistics(picture(0.8, 0.4), disc()).items()}
    assert tuple(found) == STATISTICS
    assert found["mean inside"] == pytest.approx(0.8, abs=0.002)
    assert found["mean around"] == pytest.approx(found["mean far"]) == pytest.approx(0.4, abs=0.002)
    assert found["contrast"] == pytest.approx(0.4, abs=0.004)
    assert found["spread inside"] == found["spread around"] == found["grain inside"] == 0
    # A step of 0.4 gives central differences of 0.2 on either side of it.
    assert 0.15 < found["border sharpness"] < 0.25
    assert math.isnan(found["saturation inside"])


def test_noise_is_seen_as_noise() -> None:
    found = {name: float(value) for name, value in statistics(picture(0.6, 0.4, noise=0.05), disc()).items()}
    assert found["spread inside"] == pytest.approx(0.05, rel=0.1)
    assert found["contrast to noise"] == pytest.approx(0.2 / 0.05, rel=0.1)
    assert found["grain inside"] == pytest.approx(math.sqrt(2), rel=0.08)
    assert found["coarse grain around"] == pytest.approx(math.sqrt(2), rel=0.1)
    # Of white noise, a neighbour is brighter with a chance p that the pixel decides: 8 E[2p (1 − p)] = 8/3.
    assert found["busyness inside"] == pytest.approx(8 / 3, rel=0.1)


def test_blur_lowers_edge_sharpness_and_slope() -> None:
    sharp = picture(0.7, 0.3, noise=0.03)
    blurred = torch.nn.functional.avg_pool2d(sharp.float(), 5, 1, 2, count_include_pad=False).to(torch.uint8)
    a, b = statistics(sharp, disc()), statistics(blurred, disc())
    for name in ("border sharpness", "grain inside", "busyness around", "spectral slope"):
        assert float(b[name]) < 0.8 * float(a[name]) if float(a[name]) > 0 else float(b[name]) < float(a[name]) - 0.2


def test_saturation_is_that_of_the_colour() -> None:
    image = picture(0.5, 0.5, channels=3).clone()
    image[:, 1:] = image[:, 1:] // 2
    found = statistics(image, disc())
    assert float(found["saturation inside"]) == pytest.approx(0.5, abs=0.01)


def test_lesions_without_a_ring_or_too_small_say_nothing() -> None:
    images = picture(0.5, 0.3).repeat(3, 1, 1, 1)
    masks = torch.cat([torch.zeros_like(disc()), torch.ones_like(disc()), disc(1.5)])
    for values in statistics(images, masks).values():
        assert bool(values.isnan().all())


@pytest.mark.parametrize("slope", [0.0, -1.0, -2.0])
def test_the_spectral_slope_of_made_noise(slope: float) -> None:
    spectrum = torch.fft.rfft2(torch.randn(8, 128, 128, generator=torch.Generator().manual_seed(0)))
    frequency = (torch.fft.fftfreq(128)[:, None] ** 2 + torch.fft.rfftfreq(128) ** 2).sqrt()
    frequency[0, 0] = 1
    noise = torch.fft.irfft2(spectrum * frequency ** (slope / 2))
    assert float(spectral_slope(noise).mean()) == pytest.approx(slope, abs=0.15)


def test_wasserstein_is_scipys() -> None:
    draw = torch.Generator().manual_seed(2)
    a, b = torch.randn(57, generator=draw), 0.3 + 2 * torch.randn(131, generator=draw)
    assert wasserstein(a, b) == pytest.approx(float(stats.wasserstein_distance(a.numpy(), b.numpy())), rel=1e-6)
    assert wasserstein(a, a) == 0
    assert wasserstein(a, a + 0.25) == pytest.approx(0.25, abs=1e-6)


def test_the_distance_of_like_from_like_is_its_floor_and_of_a_shift_is_the_shift() -> None:
    draw = torch.Generator().manual_seed(3)
    a, b = 5 + 3 * torch.randn(300, generator=draw), 5 + 3 * torch.randn(300, generator=draw)
    same = distance(a, b, resamples=100)
    assert same.distance < 2 * same.floor < 0.4
    moved = distance(a, b + 3, resamples=100)
    assert moved.distance == pytest.approx(1.0, abs=0.15)
    assert moved.shift == pytest.approx(1.0, abs=0.15)
    low, high = moved.interval_95
    assert low < moved.distance < high
    assert high - low < 0.5
    with pytest.raises(UserError, match="at least 2 images a side, not 300 and 1"):
        distance(a, b[:1])
