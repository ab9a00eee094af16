"""FID and KID against SciPy's matrix root, hand sums and known shifts; intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg

from laworder.errors import UserError
from laworder.metrics import frechet as module
from laworder.metrics.frechet import Moments, estimates, floor, frechet, frechet_of, kid, moments


def draws(n: int, d: int = 24, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) @ np.diag(np.linspace(0.2, 1.5, d)) + shift).astype(np.float32)


def textbook(a: np.ndarray, b: np.ndarray) -> float:
    """|μ₁ − μ₂|² + tr(Σ₁ + Σ₂ − 2 (Σ₁Σ₂)^½), with SciPy's root."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    s, t = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = linalg.sqrtm(s @ t)
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s + t - 2 * np.real(root)))


@pytest.mark.parametrize("sizes", [(200, 300), (300, 25)])
def test_fid_is_that_of_the_matrix_root(sizes: tuple[int, int]) -> None:
    a, b = draws(sizes[0]), draws(sizes[1], seed=1, shift=0.3)
    expected = textbook(a, b)
    assert frechet_of(a, b) == pytest.approx(expected, rel=1e-6)
    assert frechet(moments(a), moments(b)) == pytest.approx(expected, rel=1e-6)


def test_fewer_images_than_features_take_the_other_way_to_the_same_number() -> None:
    a, b = draws(15, d=40), draws(20, d=40, seed=1, shift=0.2)
    assert frechet_of(a, b) == pytest.approx(frechet(moments(a), moments(b)), rel=1e-6)
    assert frechet_of(a, a) == pytest.approx(0, abs=1e-9)


def test_moments_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draws(2500, d=5)
    found = moments(x)
    assert found.count == 2500
    np.testing.assert_allclose(found.covariance.numpy(), np.cov(x.astype(np.float64), rowvar=False), rtol=1e-10)
    assert isinstance(found, Moments)
    monkeypatch.setattr(module, "_ROWS", 7)
    torch.testing.assert_close(moments(x).mean, found.mean, rtol=1e-12, atol=1e-12)


def test_kid_is_the_unbiased_estimate() -> None:
    a, b = draws(30), draws(41, seed=1, shift=0.1)
    d = a.shape[1]
    ka, kb, kc = (
        (np.asarray(x, np.float64) @ np.asarray(y, np.float64).T / d + 1) ** 3 for x, y in ((a, a), (b, b), (a, b))
    )
    expected = (ka.sum() - np.trace(ka)) / (30 * 29) + (kb.sum() - np.trace(kb)) / (41 * 40) - 2 * kc.mean()
    assert kid(a, b) == pytest.approx(expected, rel=1e-10)


def test_kid_of_like_sets_is_about_zero_and_fid_is_not() -> None:
    found = [(frechet_of(draws(60, seed=s), draws(60, seed=100 + s)), kid(draws(60, seed=s), draws(60, seed=100 + s)))
             for s in range(30)]  # fmt: skip
    fids, kids = np.array(found).T
    assert fids.mean() > 5 * fids.std() / np.sqrt(30)
    assert abs(kids.mean()) < 3 * kids.std() / np.sqrt(30)


def test_the_intervals_hold_the_value_and_are_as_wide_as_chance() -> None:
    """The spread of FID over fresh samples is what one sample's bootstrap says, within a factor of 1.6."""
    seen = np.array([frechet_of(draws(120, seed=s), draws(120, seed=500 + s, shift=0.3)) for s in range(60)])
    fid, mmd = estimates(draws(120), draws(120, seed=500, shift=0.3), resamples=200)
    low, high = fid.interval_95
    assert low < fid.value < high
    assert 1 / 1.6 < (high - low) / (4 * seen.std()) < 1.6
    assert mmd.interval_95[0] < mmd.value < mmd.interval_95[1]
    again = estimates(draws(120), draws(120, seed=500, shift=0.3), resamples=200)
    assert again == (fid, mmd)


def test_large_sets_are_subsampled_for_the_interval_and_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draws(800), draws(800, seed=1, shift=0.3)
    whole = estimates(a, b, resamples=200)[0]
    monkeypatch.setattr(module, "MOST", 200)
    part = estimates(a, b, resamples=200)[0]
    assert part.value == whole.value
    width = [e.interval_95[1] - e.interval_95[0] for e in (whole, part)]
    assert 0.6 < width[1] / width[0] < 1.6


def test_the_floor_is_between_halves() -> None:
    x = draws(100)
    found = floor(x, cuts=4)
    assert found is not None
    assert found.images == 50
    assert 0 < found.fid < frechet_of(x[:50], x[50:] + 1)
    assert floor(x[:3]) is None


class Watched(np.ndarray):
    """Features that count how many of their rows were asked for at once."""

    most = 0

    def __getitem__(self, key: object) -> np.ndarray:
        found = super().__getitem__(key)  # type: ignore[index]
        Watched.most = max(Watched.most, len(found))
        return np.asarray(found)


def test_memory_does_not_grow_with_the_number_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mapped features no more rows are asked for at once than a block has, or an interval is computed from."""
    monkeypatch.setattr(module, "MOST", 1500)
    x, y = (draws(4000, d=6, seed=s).view(Watched) for s in (0, 1))
    Watched.most = 0
    frechet_of(x, y), kid(x, y), floor(x, cuts=1)
    assert Watched.most == 1024
    estimates(x, y, resamples=2)
    assert Watched.most == 1500


def test_a_draw_by_products_is_the_draw_itself() -> None:
    """FID and KID of a resampled set are those of the images written out as often as they were drawn."""
    for n, m, d in ((20, 25, 60), (80, 50, 9)):
        a, b = draws(n, d=d), draws(m, d=d, seed=1, shift=0.2)
        generator = torch.Generator().manual_seed(3)
        w, v = (module._times(k, generator) for k in (n, m))
        fid, mmd = module._Products(*(torch.from_numpy(x).double() for x in (a, b))).drawn(w, v)
        often = [np.repeat(x, times.int().numpy(), axis=0) for x, times in ((a, w), (b, v))]
        assert len(often[0]) == n
        assert fid == pytest.approx(frechet_of(*often), rel=1e-6)
        k = [module.kernel(torch.from_numpy(x @ y.T).double(), d).numpy() for x, y in ((a, a), (b, b), (a, b))]
        apart = []
        for one, times in ((k[0], w.numpy()), (k[1], v.numpy())):
            pairs = np.outer(times, times) - np.diag(times**2)  # of different images only
            apart.append((one * pairs).sum() / pairs.sum())
        assert mmd == pytest.approx(sum(apart) - 2 * w.numpy() @ k[2] @ v.numpy() / (n * m), rel=1e-4, abs=1e-6)


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(UserError, match="at least 2 images a side, not 1 and 5"):
        frechet_of(draws(1), draws(5))
    with pytest.raises(UserError, match="of different networks"):
        kid(draws(5, d=3), draws(5, d=4))
    with pytest.raises(UserError, match="of different networks"):
        frechet(moments(draws(5, d=3)), moments(draws(5, d=4)))
    with pytest.raises(UserError, match="at least 2 images, not 1"):
        moments(draws(1))
