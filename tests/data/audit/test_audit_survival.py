"""Lesions are counted as scipy counts them, and followed as the loaders and LAW resize them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from laworder.data.audit.components import groups_of_links, label
from laworder.data.audit.survival import Grid, by_size, fates, grids, half_covered, labels_on, nearest, touched
from laworder.data.audit.weights import summarise, weights_of
from laworder.data.pairs import Pair, resize_pair
from laworder.law import LAW
from laworder.law.masks import latent_mask


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 40), st.floats(0.0, 1.0))
@settings(max_examples=120)
def test_components_are_those_of_scipy(seed: int, height: int, width: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    ours, count = label(mask)
    theirs, expected = ndimage.label(mask, structure=np.ones((3, 3)))
    assert count == expected
    np.testing.assert_array_equal(ours, theirs)


def test_links_make_groups() -> None:
    assert groups_of_links(6, [(4, 1), (1, 5), (0, 2)]) == [[0, 2], [1, 4, 5]]
    assert groups_of_links(3, []) == []


def disc(side: int, radius: float, centre: tuple[float, float]) -> np.ndarray:
    y, x = np.mgrid[:side, :side]
    return (((y - centre[0]) ** 2 + (x - centre[1]) ** 2) < radius**2).astype(np.uint8)


@given(st.integers(0, 2**31), st.integers(20, 90), st.integers(20, 90), st.sampled_from([7, 16, 32, 50]))
@settings(max_examples=60)
def test_nearest_is_that_of_the_loaders_and_of_law(seed: int, height: int, width: int, side: int) -> None:
    mask = (np.random.default_rng(seed).random((height, width)) < 0.3).astype(np.uint8)
    ours = nearest(mask.astype(np.int32), side)
    loaded = resize_pair(Pair(np.zeros((height, width, 1), np.uint8), mask, "a", "a"), side, 1)[1]
    np.testing.assert_array_equal(ours, loaded)
    full = torch.from_numpy(mask)[None, None].float()
    on_latents = labels_on(mask.astype(np.int32), Grid(8 * side, side))
    np.testing.assert_array_equal(on_latents, latent_mask(full, (side, side))[0, 0].numpy())
    assert touched(mask > 0, side) == int(latent_mask(full, (side, side), resize="any").sum())


@given(st.integers(0, 2**31), st.sampled_from([(64, 8), (96, 32), (40, 10)]))
@settings(max_examples=40)
def test_half_covered_is_area_pooling_at_one_half(seed: int, sides: tuple[int, int]) -> None:
    size, side = sides
    rng = np.random.default_rng(seed)
    mask = disc(size, rng.uniform(1, size / 3), (rng.uniform(0, size), rng.uniform(0, size)))
    pooled = latent_mask(torch.from_numpy(mask)[None, None].float(), (side, side), resize="area")
    assert half_covered(mask.astype(np.int32), 1, side) == int((pooled >= 0.5).sum())


def test_half_covered_counts_cut_pixels_in_part() -> None:
    labels = np.zeros((3, 3), dtype=np.int32)
    labels[:, 0] = 1  # a third of the width: two thirds of the left cell of two
    assert half_covered(labels, 1, 2) == 2
    labels[:, 0], labels[:, 1] = 0, 1  # the middle third: a third of either cell
    assert half_covered(labels, 1, 2) == 0


def test_a_small_lesion_between_cell_centres_vanishes_and_a_large_one_stays() -> None:
    mask = disc(384, 2.2, (4.0 + 8 * 10 + 4, 4.0 + 8 * 10 + 4)) | disc(384, 60, (260, 260))
    labels, count = label(mask > 0)
    sizes = np.bincount(labels.ravel())[1:].astype(np.int32)
    assert count == 2
    wanted = grids((384,), 8)
    assert [g.side for g in wanted] == [384, 48]
    found = fates(labels, sizes, wanted, 10)
    np.testing.assert_allclose(found.kept[:, 0], 1, atol=1e-6)
    assert found.kept[0, 1].tolist() == [0, 0]
    assert found.kept[1, 1, 0] == pytest.approx(1, abs=0.05)
    lines = by_size([found, found])
    assert [line.lesions for line in lines] == [2, 2, 4]
    assert lines[0].vanished[1].tolist() == [1, 1]
    assert lines[-1].name == "all"
    assert lines[-1].vanished[1].tolist() == [0.5, 0.5]


def test_specks_are_not_lesions_but_weigh_in_r() -> None:
    mask = np.zeros((64, 64), dtype=bool)
    mask[8:11, 8:11] = True
    labels, _ = label(mask)
    found = fates(labels, np.array([9], dtype=np.int32), [Grid(64, 64)], 10)
    assert len(found.area) == 0
    assert found.cells[0].tolist() == [9, 9]


@pytest.mark.parametrize("w_max", [2.0, 4.0])
def test_the_weights_are_those_of_law_at_its_start(w_max: float) -> None:
    masks = torch.from_numpy(np.stack([disc(16, radius, (8, 8)) for radius in (0, 1.5, 3, 5, 30)]))[:, None].float()
    law = LAW(channels=1, w_max=w_max)
    noise = torch.randn(2, len(masks), 1, 16, 16)
    loss = law(noise[0], noise[1], masks)
    cells = masks.sum(dim=(1, 2, 3)).numpy().astype(np.int64)
    lesion, background, mean = weights_of(cells, 16, w_max=w_max)
    np.testing.assert_allclose(mean, loss.weight_map.mean(dim=(1, 2, 3)).numpy(), rtol=1e-5)
    for k in range(1, 4):
        np.testing.assert_allclose(lesion[k], loss.weight_map[k, 0, 8, 8].item(), rtol=1e-5)
        np.testing.assert_allclose(background[k], loss.weight_map[k, 0, 0, 0].item(), rtol=1e-5)
    summary = summarise(cells, np.array([True, False, False, False, False]), 16, "nearest", w_max=w_max)
    full = cells[-1]  # evenly weighed, not saturated
    expected = float(loss.stats["saturated"]) * cells.sum() / (cells.sum() - full) * (cells.sum() - full) / cells.sum()
    assert summary.saturated == pytest.approx(expected, rel=1e-5)
    assert summary.blank == pytest.approx(0.4)
    assert summary.lost == 0


def test_a_lost_lesion_is_counted() -> None:
    summary = summarise(np.array([0, 0, 8]), np.array([True, False, False]), 8, "nearest")
    assert (summary.lost, summary.lost_masks) == (0.5, 1)
    assert summary.histogram()[0] == pytest.approx(2 / 3)
    assert sum(summary.histogram()) == pytest.approx(1)
