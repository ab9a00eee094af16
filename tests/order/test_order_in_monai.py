"""ORDER as it stands inside MONAI: its loss for a training step, its sliding window for a large image."""

from __future__ import annotations

import torch
from monai.inferers import SlidingWindowInferer
from monai.losses import DiceCELoss

from laworder import ORDER


def test_a_training_step_with_monai_s_loss_lowers_it() -> None:
    model = ORDER(classes=2).train()
    loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images = torch.randn(2, 3, 64, 64)
    labels = (images.mean(1, keepdim=True) > 0).long()
    losses: list[float] = []
    for _ in range(15):
        optimiser.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05


def test_monai_s_sliding_window_covers_an_image_of_any_size() -> None:
    model = ORDER().eval()
    images = torch.randn(1, 3, 150, 201)
    with torch.inference_mode():
        out = SlidingWindowInferer(roi_size=(64, 64), sw_batch_size=4, overlap=0.25)(images, model)
        whole = SlidingWindowInferer(roi_size=(150, 201))(images, model)
    assert isinstance(out, torch.Tensor)
    assert out.shape == (1, 1, 150, 201)
    assert out.isfinite().all()
    torch.testing.assert_close(whole, model(images))


def test_monai_s_sliding_window_over_a_volume() -> None:
    model = ORDER(spatial_dims=3, in_channels=1, widths=(4, 8, 16), stages=(0,)).eval()
    with torch.inference_mode():
        out = SlidingWindowInferer(roi_size=(16, 16, 16), sw_batch_size=2)(torch.randn(1, 1, 20, 24, 17), model)
    assert isinstance(out, torch.Tensor)
    assert out.shape == (1, 1, 20, 24, 17)
