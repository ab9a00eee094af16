"""Outlines against MONAI in 2-D and 3-D, with and without spacing; hand tables for empty and full masks."""

from __future__ import annotations

import math
import warnings

import monai.metrics
import pytest
import torch
from monai.metrics.utils import get_edge_surface_distance

from laworder.errors import UserError
from laworder.metrics.surface import boundary_f1, distances_to, hd95, outline, outline_distances, surface_dice

# MONAI calls itself with an argument that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:monai.metrics.utils get_mask_edges:FutureWarning")


def blobs(size: tuple[int, ...], seed: int, share: float = 0.5) -> torch.Tensor:
    """A random mask with structure at several scales, that touches the border."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand([max(2, s // 5) for s in size], generator=generator)
    for axis, side in enumerate(size):
        index = torch.arange(side) * coarse.shape[axis] // side
        coarse = coarse.index_select(axis, index)
    return coarse + 0.2 * torch.rand(size, generator=generator) > 1.1 - share


CASES = [((41, 29), None), ((41, 29), (0.5, 1.7)), ((17, 21, 13), None), ((17, 21, 13), (2.5, 0.7, 0.7))]


@pytest.mark.parametrize(("size", "spacing"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_monai(size: tuple[int, ...], spacing: tuple[float, ...] | None, seed: int) -> None:
    p, t = blobs(size, 2 * seed), blobs(size, 2 * seed + 1)
    assert p.any()
    assert t.any()
    one, other = p[None, None].float(), t[None, None].float()
    given = None if spacing is None else list(spacing)
    theirs = monai.metrics.compute_hausdorff_distance(
        one, other, include_background=True, percentile=95, spacing=given
    ).item()
    _, (forth, back), _ = get_edge_surface_distance(p, t, spacing=given, symmetric=True)
    exact = max(float(d.double().quantile(0.95)) for d in (forth, back))
    assert hd95(p, t, spacing=spacing) == pytest.approx(exact, abs=1e-6)
    # MONAI's last step, the percentile, is in float32, which is good for 6 digits.
    assert hd95(p, t, spacing=spacing) == pytest.approx(theirs, abs=1e-6, rel=2e-6)
    tolerance = 1.5
    nsd = monai.metrics.compute_surface_dice(one, other, [tolerance], include_background=True, spacing=given).item()
    assert surface_dice(p, t, tolerance=tolerance, spacing=spacing) == pytest.approx(nsd, abs=1e-6)
    # MONAI has no boundary F1; its edge distances give precision and recall.
    precision, recall = ((d <= tolerance).double().mean().item() for d in (forth, back))
    expected = 2 * precision * recall / (precision + recall)
    assert boundary_f1(p, t, tolerance=tolerance, spacing=spacing) == pytest.approx(expected, abs=1e-6)


def test_the_full_hausdorff_distance_agrees_with_monai() -> None:
    p, t = blobs((30, 30), 5), blobs((30, 30), 6)
    theirs = monai.metrics.compute_hausdorff_distance(p[None, None], t[None, None], include_background=True).item()
    assert outline_distances(p, t).percentile(1.0) == pytest.approx(theirs, abs=1e-6)


EMPTY, FULL = torch.zeros(5, 6, dtype=torch.bool), torch.ones(5, 6, dtype=torch.bool)
DOT = EMPTY.clone()
DOT[2, 2] = True


@pytest.mark.parametrize(
    ("predicted", "true", "values"),
    [
        (EMPTY, EMPTY, (math.nan, 1, 1)),
        (DOT, EMPTY, (math.inf, 0, 0)),
        (EMPTY, DOT, (math.inf, 0, 0)),
        (FULL, EMPTY, (math.inf, 0, 0)),
        (FULL, FULL, (0, 1, 1)),
        (DOT, DOT, (0, 1, 1)),
        # The border of a full 5×6 picture is 18 pixels. (0, 2), (4, 2) and (2, 0) lie 2 from the dot; the two farthest
        # are corners, √13 away.
        (DOT, FULL, (math.sqrt(13), 2 * (3 / 18) / (1 + 3 / 18), 4 / 19)),
    ],
)
def test_hand_table(predicted: torch.Tensor, true: torch.Tensor, values: tuple[float, float, float]) -> None:
    found = (hd95(predicted, true), boundary_f1(predicted, true), surface_dice(predicted, true))
    assert found == pytest.approx(values, abs=1e-12, nan_ok=True)


def test_monai_has_no_number_where_we_say_so() -> None:
    one, none = DOT[None, None].float(), EMPTY[None, None].float()
    for p, t, nsd in ((none, none, math.nan), (one, none, 0.0), (none, one, 0.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            distance = monai.metrics.compute_hausdorff_distance(p, t, include_background=True, percentile=95)
            dice = monai.metrics.compute_surface_dice(p, t, [1.0], include_background=True)
        assert math.isnan(distance.item())
        assert dice.item() == pytest.approx(nsd, nan_ok=True)


def test_distances_are_exact() -> None:
    points = torch.rand(9, 7, 5, generator=torch.Generator().manual_seed(1)) > 0.97
    spacing = torch.tensor([0.4, 1.1, 3.0])
    places = torch.stack(torch.meshgrid(*(torch.arange(s) for s in points.shape), indexing="ij"), -1) * spacing
    brute = (places[..., None, :] - places[points]).double().norm(dim=-1).amin(-1)
    torch.testing.assert_close(distances_to(points, spacing.tolist()), brute, atol=1e-5, rtol=0)
    assert distances_to(torch.zeros(3, 3, dtype=torch.bool), (1.0, 1.0)).isinf().all()


def test_outline_is_one_pixel_inside() -> None:
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[1:5, 1:5] = True
    assert outline(mask).sum() == 12
    assert outline(torch.ones(4, 4, 4, dtype=torch.bool)).sum() == 64 - 8
    assert not outline(torch.zeros(4, 4, dtype=torch.bool)).any()


@pytest.mark.untyped
def test_bad_input_is_refused() -> None:
    with pytest.raises(UserError, match="differ in shape"):
        hd95(EMPTY, EMPTY[1:])
    with pytest.raises(UserError, match="must be boolean"):
        hd95(EMPTY.float(), EMPTY.float())
    for spacing in ((1.0,), (1.0, 0.0), (1.0, math.nan)):
        with pytest.raises(UserError, match="2 positive numbers"):
            hd95(DOT, DOT, spacing=spacing)
