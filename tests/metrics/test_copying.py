"""Copies are recognised however they lie; strangers are not; the threshold is what its formula says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from laworder.data.audit.duplicates import COPY, ORIENTATIONS, turn
from laworder.data.audit.fingerprints import SIDE, local_contrast
from laworder.errors import UserError
from laworder.metrics.copying import (
    LOOK,
    NOBODY,
    Pictures,
    layout,
    look,
    matches,
    move_matrix,
    moved_pictures,
    nearest,
    share_interval,
    threshold,
)


def scenes(count: int, seed: int = 0) -> Pictures:
    """Smooth random pictures."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 12, 12, generator=draw)
    fine = F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic")
    colour = (128 + 50 * fine).clamp(0, 255)
    contrast = np.stack([local_contrast(picture.mean(0).numpy()) for picture in colour])
    return Pictures(contrast, F.interpolate(colour, size=(LOOK, LOOK), mode="area").to(torch.uint8))


def turned(pictures: Pictures, orientation: str) -> Pictures:
    contrast = turn(torch.from_numpy(pictures.contrast), orientation).contiguous().numpy()
    return Pictures(contrast, turn(pictures.colour, orientation).contiguous())


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_copy_in_any_orientation_is_found_and_its_orientation_told(orientation: str) -> None:
    known = scenes(30)
    undone = {"quarter turn left": "quarter turn right", "quarter turn right": "quarter turn left"}
    made = turned(Pictures(known.contrast[:6], known.colour[:6]), orientation)
    gaps, candidates = nearest(made, known)
    found = matches(made, known, candidates)
    assert [match.index for match in found] == list(range(6))
    assert {match.orientation for match in found} == {undone.get(orientation, orientation)}
    assert min(match.likeness for match in found) > 0.97
    assert all(float(gap.max()) < 0.15 for gap in gaps.values())


def test_strangers_are_far_in_both_spaces_and_in_pixels() -> None:
    gaps, candidates = nearest(scenes(20, seed=1), scenes(30))
    found = matches(scenes(20, seed=1), scenes(30), candidates)
    assert max(match.likeness for match in found) < 0.6
    assert all(float(gap.min()) > 0.5 for gap in gaps.values())


@pytest.mark.parametrize(
    ("zoom", "angle"),
    [(0.9, 0.0), (1.1, 0.0), (1.0, 5.0), (1.0, -10.0), (1.05, 0.0), (1.03, 0.0), (0.96, 0.0), (1.0, 7.5), (1.06, 3.0)],
)
def test_a_moved_copy_is_moved_back(zoom: float, angle: float) -> None:
    known = scenes(30)
    there = moved_pictures(known.contrast[:6], zoom, angle)
    assert not np.array_equal(there, known.contrast[:6])
    made = Pictures(there, known.colour[:6])
    found = matches(made, known, nearest(made, known)[1])
    assert [match.index for match in found] == list(range(6))
    assert min(match.likeness for match in found) > 0.9
    for match in found:
        assert match.zoom * zoom == pytest.approx(1, abs=0.02)
        assert match.angle == pytest.approx(-angle, abs=1.3)


def test_a_move_is_a_rotation_and_an_enlargement() -> None:
    matrix = torch.tensor(move_matrix(2.0, 30.0))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(2) / 4)
    (a, b), _ = move_matrix(1.0, 90.0)
    assert (a, b) == pytest.approx((0, 1), abs=1e-12)


def test_embeddings_are_a_space_of_their_own_and_forbidden_pairs_are_not_candidates() -> None:
    known = scenes(10)
    draws = torch.randn(10, 5, generator=torch.Generator().manual_seed(0))
    known = Pictures(known.contrast, known.colour, draws)
    gaps, candidates = nearest(known, known, forbidden=torch.eye(10, dtype=torch.bool))
    assert set(gaps) == {"layout", "look", "network"}
    assert not bool((candidates[:, 0] == candidates[:, 1]).any())
    expected = torch.cdist(F.normalize(draws, dim=1), F.normalize(draws, dim=1)).fill_diagonal_(9).amin(1)
    torch.testing.assert_close(gaps["network"], expected, atol=1e-3, rtol=0)


def test_a_picture_without_features_is_like_nothing() -> None:
    known = scenes(10)
    blank = Pictures(np.zeros((1, SIDE, SIDE), dtype=np.int8), torch.full((1, 3, LOOK, LOOK), 90, dtype=torch.uint8))
    assert matches(blank, known, nearest(blank, known)[1]) == [NOBODY]
    for values in (layout(blank.contrast), look(blank.colour)):
        assert bool(values.isfinite().all())


def test_the_threshold_is_passed_as_rarely_as_it_says() -> None:
    """Of likenesses with an exponential tail in z, about one in a thousand lies above the threshold."""
    draw = torch.Generator().manual_seed(0)
    z = 0.3 - 0.05 * torch.rand(200_000, generator=draw).log()
    bars = [threshold(torch.tanh(part)) for part in z[:20_000].split(1000)]
    passed = float((torch.tanh(z) > sum(bars) / len(bars)).double().mean())
    assert 2e-4 < passed < 1.5e-3
    # 0.3 + 0.05 ln 1000, with the scale a tenth higher for a tail of 100.
    assert sum(bars) / len(bars) == pytest.approx(
        math.tanh(0.3 + 0.05 * (math.log(10) + 1.1 * math.log(100))), abs=0.01
    )


def test_few_training_images_make_the_threshold_careful_and_it_has_a_ceiling() -> None:
    values = torch.linspace(0.3, 0.5, 12)
    assert threshold(values) > threshold(torch.linspace(0.3, 0.5, 1200))
    assert threshold(torch.tensor([0.1, 0.99, 0.5])) == COPY
    with pytest.raises(UserError, match="at least 2 training images that can be compared, not 0"):
        threshold(torch.zeros(5))


def test_the_interval_of_a_share_is_wilsons() -> None:
    from scipy.stats import binomtest

    for hits, count in ((0, 50), (3, 200), (50, 50)):
        expected = binomtest(hits, count).proportion_ci(method="wilson")
        assert share_interval(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-6)
