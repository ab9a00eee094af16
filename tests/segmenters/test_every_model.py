"""What every registered segmenter must do, whoever registered it.

Weights are drawn in float32 and cast to float64: what is compared is then the network, not the order of additions.
`python tests/segmenters/test_every_model.py` records the golden outputs anew.
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laworder import create, list_models
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.segmenters.profile import count_parameters

GOLDEN = Path(__file__).parents[1] / "golden" / "segmenters.json"
SMALL = [name for name in list_models() if count_parameters(create(name)) < 200_000]


@lru_cache(maxsize=4)
def batch(size: int = 64) -> Tensor:
    return torch.randn(3, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def settled(name: str, *, seed: int = 0, **settings: Any) -> Segmenter:
    """A model in float64 whose batch norms hold the statistics of `batch()`, in eval mode.

    Fresh running statistics (mean 0, variance 1) would let a signal of N(0, 0.02) weights fade to nothing.
    """
    torch.manual_seed(seed)
    model = create(name, **settings).double().train()
    counts: dict[nn.Module, float] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counts[module] = inputs[0].numel() / inputs[0].shape[1]

    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    hooks = [m.register_forward_pre_hook(note) for m in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.deep_logits(batch()[:, : model.in_channels])
    for norm in norms:  # torch keeps the unbiased variance, but normalises by the biased one
        norm.running_var *= (counts[norm] - 1) / counts[norm]
    for hook in hooks:
        hook.remove()
    return model.eval()


@pytest.fixture(scope="module", params=list_models())
def model(request: pytest.FixtureRequest) -> Segmenter:
    """Each registered model in turn, settled; the tests below share it and leave it as it was."""
    return settled(request.param)


def same(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Equal up to a share of the largest value."""
    return float((a - b).abs().max()) <= tolerance * float(b.abs().max())


def golden(model: Segmenter) -> dict[str, Any]:
    """The seeded output of a settled model, in brief."""
    with torch.no_grad():
        out = model(batch())
    return {
        "shape": list(out.shape),
        "mean": out.mean().item(),
        "std": out.std().item(),
        "values": out.flatten()[:: out.numel() // 12].tolist(),
    }


def test_golden_outputs(model: Segmenter) -> None:
    recorded = json.loads(GOLDEN.read_text())
    assert model.origin is not None
    name = model.origin.name
    assert name in recorded, f"record it: python {Path(__file__).relative_to(Path(__file__).parents[2])}"
    now, then = golden(model), recorded[name]
    assert now["shape"] == then["shape"]
    for key in ("mean", "std", "values"):
        torch.testing.assert_close(
            torch.tensor(now[key]), torch.tensor(then[key]), rtol=1e-4, atol=1e-7 + 1e-5 * then["std"]
        )


def test_no_golden_output_is_orphaned() -> None:
    assert sorted(json.loads(GOLDEN.read_text())) == list_models()


@pytest.mark.parametrize("name", list_models())
def test_every_parameter_receives_a_finite_non_zero_gradient(name: str) -> None:
    """From the model's own deep supervision, in train mode.

    A ReLU of one or two units may be shut at one initialisation; each parameter must be reached within eight.
    """
    torch.manual_seed(0)
    waiting = {n for n, p in create(name).named_parameters() if p.requires_grad}
    for seed in range(8):
        model = settled(name, seed=seed)
        target = (batch()[:, :1] > 0).double()
        maps = model.deep_logits(batch())
        loss = sum(nn.functional.binary_cross_entropy_with_logits(logits, target) for logits in maps)
        assert isinstance(loss, Tensor)
        loss.backward()
        for n, p in model.named_parameters():
            if p.grad is not None:
                assert p.grad.isfinite().all(), n
                if p.grad.abs().max() > 0:
                    waiting.discard(n)
        if not waiting:
            return
    assert not waiting, sorted(waiting)


@pytest.mark.parametrize("name", list_models())
def test_the_plain_logits_train_all_but_the_side_heads(name: str) -> None:
    """A loss on `forward` alone in train mode: finite gradients, none missing outside deep supervision."""
    model = create(name).train()
    model(batch().float()).square().mean().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert all("side" in n or "head" in n for n in without), without
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_samples_of_a_batch_do_not_see_each_other(model: Segmenter) -> None:
    changed = batch().clone()
    changed[1] = 9.0
    with torch.no_grad():
        together, alone = model(batch()), torch.cat([model(one) for one in batch().split(1)])
        assert same(model(changed)[0], together[0], 1e-9)
    assert same(alone, together, 1e-9)


def test_train_and_eval_differ_in_nothing_but_where_the_statistics_come_from(model: Segmenter) -> None:
    """With the batch's own statistics on record, eval mode repeats the train mode's output."""
    with torch.no_grad():
        assert same(model(batch()), copy.deepcopy(model).train()(batch()), 1e-7)


def test_channels_last_gives_the_same(model: Segmenter) -> None:
    turned = copy.deepcopy(model).to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert same(turned(batch().to(memory_format=torch.channels_last)), model(batch()), 1e-9)


def test_the_first_deep_map_is_the_forward_pass(model: Segmenter) -> None:
    x = batch()[:, :, :50]
    with torch.no_grad():
        assert torch.equal(model.deep_logits(x)[0], model(x))


@pytest.mark.parametrize("name", list_models())
def test_sizes_that_fit_are_untouched_and_odd_ones_come_back(name: str) -> None:
    model = create(name).eval()
    with torch.inference_mode():
        x = torch.randn(1, 3, 64, 96)
        assert torch.equal(model(x), model.logits(x))
        for size in [(33, 47), (65, 100)]:
            maps = model.deep_logits(torch.randn(1, 3, *size))
            assert [m.shape for m in maps] == [(1, 1, *size)] * len(maps)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("size", [(250, 250), (33, 1025), (401, 129)])
def test_more_sizes_of_the_small_models(name: str, size: tuple[int, int]) -> None:
    with torch.inference_mode():
        out = create(name).eval()(torch.randn(1, 3, *size))
    assert out.shape == (1, 1, *size)
    assert out.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMALL) - {"order_12", "order_23", "order_0123"}))
def test_the_largest_size_of_the_small_models(name: str) -> None:
    """The others attend between 70,000 tokens and more at 1025²: any size, but not in the time of a test."""
    with torch.inference_mode():
        assert create(name).eval()(torch.randn(1, 3, 1025, 1025)).shape == (1, 1, 1025, 1025)


@pytest.mark.parametrize("name", list_models())
def test_channels_and_classes(name: str) -> None:
    model = create(name, in_channels=1, classes=3).eval()
    with torch.inference_mode():
        x = torch.randn(1, 1, 64, 64)
        assert model(x).shape == (1, 3, 64, 64)
        torch.testing.assert_close(model.probabilities(x).sum(1), torch.ones(1, 64, 64))


@pytest.mark.parametrize("name", list_models())
def test_mistakes_are_named(name: str) -> None:
    with pytest.raises(UserError, match="in_channels"):
        create(name, in_channels=0)
    with pytest.raises(UserError, match="classes"):
        create(name, classes=0)
    model = create(name)
    with pytest.raises(UserError, match="must have 3 channels on axis 1"):
        model(torch.zeros(1, 4, 64, 64))
    with pytest.raises(UserError, match="must have 4 axes"):
        model(torch.zeros(3, 64, 64))


if __name__ == "__main__":
    torch.set_num_threads(1)
    records = {name: golden(settled(name)) for name in list_models()}
    GOLDEN.write_text(json.dumps(records, indent=1) + "\n")
