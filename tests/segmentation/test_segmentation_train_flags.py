"""Every setting of `seg train` does what it says: each test fails where the setting does nothing."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from laworder.config import build
from laworder.data.augment import apply
from laworder.data.cache import Batch
from laworder.data.pairs import Pair
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError
from laworder.runs import Checkpoints, read_metrics
from laworder.runs.distributed import Place
from laworder.segmentation.feed import HeldFeed, StreamedFeed, open_feed
from laworder.segmentation.losses import segmentation_loss
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import SegmentTask, normalise
from laworder.segmentation.train import train
from laworder.segmenters import create

SMALL = {"data": "phantom", "size": 32, "phantom.count": 12, "batch": 4, "epochs": 1, "held_out": 0.3, "device": "cpu",
         "model": "order_backbone", "log": "none", "augment.rotate": 0}  # fmt: skip


def settings(**more: Any) -> TrainConfig:
    return build(TrainConfig, {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}})


def task(**more: Any) -> SegmentTask:
    config = settings(**more)
    torch.manual_seed(0)
    model = create(config.model, in_channels=config.channels, classes=config.classes)
    return SegmentTask(model, config, torch.device("cpu"), names=list("abcd"), place=Place())


def batch(count: int = 4) -> Batch:
    chance = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=chance)
    masks = (torch.rand(count, 1, 32, 32, generator=chance) > 0.7).to(torch.uint8)
    return Batch(images, masks, torch.arange(count))


def seen_by_first_convolution(of: SegmentTask) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Input and output of it, at each pass."""
    first = next(m for m in of.model.modules() if isinstance(m, nn.Conv2d))
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    first.register_forward_hook(lambda _, args, out: found.append((args[0].detach(), out.detach())))
    return found


def state_after(steps: int, folder: Path, **more: Any) -> dict[str, Any]:
    train(settings(out=folder, **more))
    found = Checkpoints(folder / "checkpoints").latest()
    assert found is not None
    assert found.step == steps
    return found.state


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_precision_is_that_of_the_network_and_weights_stay_fp32(precision: str, dtype: torch.dtype) -> None:
    of = task(precision=precision)
    seen = seen_by_first_convolution(of)
    loss, _ = of.micro_step(batch(), 1, 0)
    loss.backward()
    assert seen[0][1].dtype == dtype
    assert loss.dtype == torch.float32
    assert {p.dtype for p in of.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("wanted", [False, True])
def test_channels_last_reaches_images_and_weights(wanted: bool) -> None:
    of = task(channels_last=wanted)
    seen = seen_by_first_convolution(of)
    of.micro_step(batch(), 1, 0)
    assert seen[0][0].is_contiguous(memory_format=torch.channels_last) == wanted
    kernels = [m.weight for m in of.model.modules() if isinstance(m, nn.Conv2d) and m.weight[0].numel() > 9]
    assert all(k.is_contiguous(memory_format=torch.channels_last) for k in kernels if k.shape[1] > 1) or not wanted


def test_compile_goes_through_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f) or f)
    task(compile=False)
    assert compiled == []
    of = task(compile=True)
    assert [f.__name__ for f in compiled] == ["parts"]
    of.micro_step(batch(), 1, 0)


@pytest.mark.slow
@pytest.mark.untyped
@pytest.mark.filterwarnings("ignore")  # what the compiler says of itself
def test_compiled_losses_are_the_eager_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured and differentiated ahead of time; code is not generated, which takes minutes on a CPU."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager", fullgraph=True))
    for name in ("eager", "compiled"):
        train(settings(out=tmp_path / name, compile=name == "compiled", phantom__count=8, epochs=2))
    eager, compiled = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("eager", "compiled"))
    assert [line["loss"] for line in compiled] == pytest.approx([line["loss"] for line in eager], rel=1e-4)


def test_ema_is_the_running_average_and_is_what_is_judged() -> None:
    of = task(optimiser__ema=0.75, optimiser__lr=1e-2)
    expected: dict[str, torch.Tensor] = {}
    for step in range(1, 4):
        loss, _ = of.micro_step(batch(), step, 0)
        of.optimizers["optimiser"].zero_grad()
        loss.backward()
        of.optimizers["optimiser"].step()
        of.after_step(step)
        for name, now in of.model.state_dict().items():
            if now.is_floating_point():
                before = expected.get(name, now)
                expected[name] = 0.75 * before + 0.25 * now if step > 1 else now.clone()
    judged = of.judged.state_dict()
    assert of.judged is not of.model
    for name, value in expected.items():  # running statistics are averaged, too
        torch.testing.assert_close(judged[name], value, rtol=1e-5, atol=1e-7)
    assert not torch.equal(judged["head.weight"], of.model.state_dict()["head.weight"])
    assert task().judged.training is not None
    bare = task()
    assert bare.judged is bare.model


def test_clipping_bounds_the_gradient(tmp_path: Path) -> None:
    more = {"phantom__count": 6, "batch": 4}
    free = state_after(1, tmp_path / "free", **more)
    clipped = state_after(1, tmp_path / "clipped", optimiser__clip=1e-3, **more)

    def norm(state: dict[str, Any]) -> float:
        slots = state["optimizers"]["optimiser"]["state"].values()
        return float(torch.stack([slot["exp_avg"].norm() for slot in slots]).norm())

    # After one update the fast average is a tenth of the gradient.
    assert norm(clipped) == pytest.approx(1e-4, rel=1e-3)
    logged = read_metrics(tmp_path / "free" / "metrics.jsonl")[0]["grad_norm"]
    assert norm(free) == pytest.approx(0.1 * logged, rel=1e-3)
    assert norm(free) > 1e-3


def test_warm_up_raises_the_rate_step_by_step(tmp_path: Path) -> None:
    train(settings(out=tmp_path / "run", epochs=4, optimiser__warmup=4, optimiser__lr=1e-3))
    rates = [line["lr"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert rates[:5] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert rates[-1] < 1e-3


def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path) -> None:
    still = {"optimiser.lr": 1e-9, "optimiser.floor": 1e-9}
    trained = train(build(TrainConfig, {**SMALL, **still, "out": tmp_path, "epochs": 30, "patience": 3}))
    lines = read_metrics(tmp_path / "metrics.jsonl")
    dice = [line["val_dice"] for line in lines if "val_dice" in line]
    best = dice.index(max(dice))
    assert len(dice) == best + 1 + 3 < 30
    assert trained.validation.summary()["dice"] == pytest.approx(max(dice))


def test_class_weights_weigh_the_cross_entropy() -> None:
    logits, mask = torch.randn(2, 1, 8, 8), (torch.rand(2, 1, 8, 8) > 0.5).to(torch.uint8)
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, mask.float(), reduction="none")
    by_hand = (0.5 * each[mask == 0].sum() + 3 * each[mask == 1].sum()) / mask.numel()
    assert segmentation_loss(logits, mask, weights=torch.tensor([0.5, 3.0]))["bce"] == pytest.approx(float(by_hand))
    plain, weighted = (task(**more).micro_step(batch(), 1, 0)[1] for more in ({}, {"class_weights": (0.5, 3.0)}))
    assert float(weighted["bce"]) != pytest.approx(float(plain["bce"]), rel=1e-3)
    assert float(weighted["dice"]) == pytest.approx(float(plain["dice"]), rel=1e-6)


def test_class_weights_of_several_classes() -> None:
    logits, mask = torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2, 1, 8, 8), dtype=torch.uint8)
    each = torch.nn.functional.cross_entropy(logits, mask[:, 0].long(), reduction="none")
    weights = torch.tensor([0.5, 3.0, 2.0])
    by_hand = (each * weights[mask[:, 0].long()]).mean()
    assert segmentation_loss(logits, mask, weights=weights)["ce"] == pytest.approx(float(by_hand))


def test_deep_supervision_trains_all_outputs_of_a_model_that_has_several() -> None:
    one, all_ = (task(model="egeunet", deep_supervision=deep) for deep in (False, True))
    finest, total = (of.micro_step(batch(), 1, 0)[0].item() for of in (one, all_))
    drawn = all_.drawn(4, 1, 0)
    images, masks = apply(batch().images.float() / 255, batch().masks, drawn, photometric=False)
    losses = [sum(segmentation_loss(z, masks).values()) for z in all_.model.deep_logits(normalise(images))]
    assert len(losses) > 1
    assert finest == pytest.approx(float(torch.as_tensor(losses[0]).detach()), rel=1e-4)
    weights = all_.model.deep_weights
    by_hand = sum(w * float(torch.as_tensor(loss).detach()) for w, loss in zip(weights, losses, strict=True))  # type: ignore[arg-type]
    assert total == pytest.approx(by_hand, rel=1e-4)
    assert total > 1.2 * finest


def test_parts_of_a_batch_are_augmented_as_the_whole_is() -> None:
    of = task(accumulate=2, augment__rotate=90, augment__brightness=0.5)
    whole, first, second = of.drawn(4, 7, 0), of.drawn(2, 7, 0), of.drawn(2, 7, 1)
    for all_of_it, one, other in zip(whole, first, second, strict=True):
        assert torch.equal(all_of_it, torch.cat([one, other]))
    assert not torch.equal(whole.affine, of.drawn(4, 8, 0).affine)


def test_accumulation_makes_as_many_updates_from_as_many_images(tmp_path: Path) -> None:
    train(settings(out=tmp_path / "run", epochs=2, accumulate=2))
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["loss"] == pytest.approx(line["bce"] + line["dice"], rel=1e-5) for line in lines)


def test_memory_or_file_changes_nothing(tmp_path: Path) -> None:
    kinds = []
    for name, room in (("held", 8.0), ("streamed", 2e-5)):
        train(settings(out=tmp_path / name, epochs=3, cache_gb=room))
        source = PhantomSource(12, size=32)
        feed = open_feed(source, range(8), size=32, channels=3, classes=1, cache_gb=room, device=torch.device("cpu"))
        kinds.append(type(feed))
        feed.close()
    assert kinds == [HeldFeed, StreamedFeed]
    held, streamed = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("held", "streamed"))
    assert held == streamed


def test_tensorboard_is_the_default_and_can_be_left_out(tmp_path: Path) -> None:
    train(settings(out=tmp_path / "none"))
    train(settings(out=tmp_path / "auto", log="auto"))
    assert not (tmp_path / "none" / "tensorboard").exists()
    assert len(list((tmp_path / "auto" / "tensorboard").glob("events.*"))) == 1


def test_a_missing_wandb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="wandb is not installed"):
        train(settings(out=tmp_path / "run", log="wandb"))


class Classes:
    """Pairs whose masks hold these values."""

    def __init__(self, value: int) -> None:
        self.inner, self.value = PhantomSource(4, size=32), value
        self.names, self.groups = self.inner.names, self.inner.groups

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> Pair:
        pair = self.inner.read(index)
        mask = pair.mask * 0
        mask[3:9, 3:9] = self.value if index == 2 else 0
        return pair._replace(mask=mask) if hasattr(pair, "_replace") else Pair(**{**vars(pair), "mask": mask})


@pytest.mark.parametrize("room", [8.0, 0.0])
def test_a_class_that_the_model_lacks_is_named_with_its_image(room: float) -> None:
    source: Any = Classes(3)
    message = f"the mask of {source.names[2]} holds class 3, but classes is 3 .* set classes to 4"
    where = {"size": 32, "channels": 3, "cache_gb": room, "device": torch.device("cpu")}
    with pytest.raises(UserError, match=message):
        open_feed(source, range(4), classes=3, **where).gather([0, 1, 2, 3])
    open_feed(source, range(4), classes=4, **where).gather([0, 1, 2, 3])
    open_feed(source, range(4), classes=1, **where).gather([0, 1, 2, 3])  # lesion or not


def test_masks_without_any_lesion_are_refused() -> None:
    source: Any = Classes(0)
    with pytest.raises(UserError, match="all 4 training masks are empty at this size"):
        open_feed(source, range(4), size=32, channels=3, classes=1, cache_gb=1, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"class_weights": (1.0,)}, "class_weights: 1 given, but there are 2 classes with the background"),
        ({"class_weights": (0.0, 0.0)}, "class_weights: all are 0"),
        ({"batch": 6, "accumulate": 4}, "batch: 6 images cannot be shared out evenly over 4 parts"),
        ({"epochs": 1, "optimiser__warmup": 9}, "a cosine over 2 steps needs a warm-up of 0 to 1 steps, not 9"),
    ],
)
def test_impossible_settings_are_named(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        train(settings(out=tmp_path / "run", **more))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("key", "value"),
    [("class_weights", "1,-1"), ("patience", 0), ("accumulate", 0), ("optimiser.ema", 1.5), ("optimiser.lr", 0)],
)
def test_values_out_of_bounds_are_named(key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^{key}: must be"):
        build(TrainConfig, {**SMALL, key: value})
