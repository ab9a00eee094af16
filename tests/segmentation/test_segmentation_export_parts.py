"""The rewrite for inference and the processing inside an exported file change nothing but rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from awake import awake
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.order.attention import BidirectionalAttention
from laworder.order.blocks import MKIR
from laworder.segmentation.export.agreement import Agreement, compared, expected, insist, pictures
from laworder.segmentation.export.deployed import Deployed, padded, resized
from laworder.segmentation.export.facts import facts_of, preprocessing_of, weights_hash
from laworder.segmentation.export.lean import LeanAttention, LeanHead, LeanMKIR, lean
from laworder.segmentation.export.runtimes import Output


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("order_0123", {}),
        ("order_01", {"in_channels": 1, "classes": 3, "heads": 1}),
        ("order_01", {"widths": (3, 5, 12), "expansion": 3, "kernels": (1, 5)}),
        ("order_cbam", {}),
        ("mkunet_t", {}),
    ],
)
def test_the_lean_model_computes_the_same(name: str, settings: dict[str, Any]) -> None:
    model = awake(name, **settings).double()
    slim = lean(model)
    x = torch.randn(2, model.in_channels, 70, 96, dtype=torch.float64)
    with torch.no_grad():
        truth = model(x)
        assert truth.std() > 0.05
        assert (slim(x) - truth).abs().max() < 1e-11
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in slim.encoder.modules())  # type: ignore[union-attr]
    assert any(isinstance(part, MKIR) for part in model.modules())  # the model itself is left as it was
    assert isinstance(slim.head, LeanHead)
    assert sum(isinstance(part, LeanMKIR) for part in slim.modules()) == len(slim.encoder) * 2  # type: ignore[arg-type]


def test_attention_is_absorbed_only_where_that_is_less_work() -> None:
    model = awake("order_01", head_width=16).double()  # stage 0 has 24 channels, stage 1 has 16
    skips = lean(model).skips
    assert [type(skip) for skip in skips][:2] == [BidirectionalAttention, LeanAttention]  # type: ignore[union-attr]
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert (lean(model)(x) - model(x)).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("old", "new"), [((97, 150), (64, 64)), ((32, 32), (77, 45)), ((40, 90), (64, 64)), ((8, 8), (8, 8))]
)
def test_resizing_is_torchs_and_pillows(old: tuple[int, int], new: tuple[int, int]) -> None:
    x = torch.rand(2, 3, *old)
    expected_ = F.interpolate(x, new, mode="bilinear", antialias=True)
    assert (resized(x, *new) - expected_).abs().max() < 2e-6


def test_padding_repeats_the_last_place() -> None:
    assert padded(5, 4).tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert padded(8, 4).tolist() == list(range(8))


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("side", [None, 50, 64])
def test_images_go_in_and_masks_come_out(classes: int, side: int | None) -> None:
    model = awake("order_01", classes=classes)
    image = pictures(2, 67, 90, 3)
    mask, probability = Deployed(lean(model), side=side)(torch.from_numpy(image))
    agreement = compared(Output(mask.numpy(), probability.detach().numpy()), expected(model, image, side=side))
    assert agreement.largest_difference < 5e-5
    assert agreement.mask_agreement > 0.9999
    assert mask.dtype == torch.uint8
    assert probability.shape == (2, classes, 67, 90)
    assert 0 < (mask > 0).float().mean() < 1


@pytest.mark.parametrize("found", [Agreement(1, 8, 8, 2e-4, 1.0), Agreement(1, 8, 8, 0.0, 0.9998)])
def test_a_file_that_disagrees_is_refused(found: Agreement) -> None:
    insist([Agreement(1, 8, 8, 1e-4, 0.9999)])
    with pytest.raises(UserError, match="disagrees with the model, at 1 × 8 × 8"):
        insist([found])


def test_a_file_of_other_shapes_is_refused() -> None:
    some = Output(np.zeros((1, 4, 4), np.uint8), np.zeros((1, 1, 4, 4), np.float32))
    with pytest.raises(UserError, match="gives a mask of"):
        compared(some, Output(some.mask[:, :3], some.probability))


def test_facts_hold_what_a_user_of_the_file_needs() -> None:
    model = awake("order_backbone", in_channels=1)
    facts = facts_of(model, resized=False)
    assert preprocessing_of(facts) == model.preprocessing
    assert facts["weights_sha256"] == weights_hash(awake("order_backbone", in_channels=1))
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1
    assert weights_hash(model) != facts["weights_sha256"]
