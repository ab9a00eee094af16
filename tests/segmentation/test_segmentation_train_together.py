"""Several seeds at once: each member computes what `seg train` with its seed computes, and leaves the same folder."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from laworder.cli import main
from laworder.config import build
from laworder.errors import UserError
from laworder.runs import Checkpoints, NonFiniteError, read_manifest, read_metrics
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.optimiser import build_optimiser
from laworder.segmentation.settings import Optimiser, TrainConfig
from laworder.segmentation.together import rules
from laworder.segmentation.together.members import members_of, parse_seeds
from laworder.segmentation.together.packed import Packed
from laworder.segmentation.together.train import train_together
from laworder.segmentation.together.update import Update
from laworder.segmentation.train import train

SMALL = {"data": "phantom", "size": 64, "phantom.count": 14, "batch": 4, "epochs": 3, "held_out": 0.3, "device": "cpu",
         "log": "none"}  # fmt: skip


def settings(**more: Any) -> TrainConfig:
    return build(TrainConfig, {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}})


def both(tmp_path: Path, seeds: str = "0,3", **more: Any) -> None:
    """Train members together and alone."""
    train_together(settings(out=tmp_path / "together", seeds=seeds, **more))
    for seed in parse_seeds(seeds):
        train(settings(out=tmp_path / "alone" / f"seed-{seed}", seed=seed, **more))


def assert_same(one: Path, other: Path, *, rel: float = 1e-4) -> None:
    """Losses and scores of two run folders, to rounding, and states of the same shape.

    Gradients are compared at the first update only: where batch norm divides by next to nothing, as in the deepest maps
    of small images, they amplify rounding, also between two runs of one program on different kernels.
    """
    a, b = (read_metrics(folder / "metrics.jsonl") for folder in (one, other))
    assert len(a) == len(b)
    for mine, yours in zip(a, b, strict=True):
        assert list(mine) == list(yours)
        for name in mine:
            if name != "grad_norm" or mine["step"] == 1:
                loose = {"grad_norm": 1e-3, "val_dice": 2e-2, "val_iou": 2e-2}.get(name, rel)
                assert yours[name] == pytest.approx(mine[name], rel=loose, abs=1e-5), (mine["step"], name)
    assert len({line["loss"] for line in a}) == len(a)
    first, second = (Checkpoints(folder / "checkpoints").latest() for folder in (one, other))
    assert first is not None
    assert second is not None
    assert first.step == second.step
    assert_same_shape(first.state, second.state)


def assert_same_shape(one: Any, other: Any, where: str = "") -> None:
    """The same names, types and shapes, whatever the numbers: either kind of run can go on from the other's state."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert set(one) == set(other), where
        for name in one:
            assert_same_shape(one[name], other[name], f"{where}/{name}")
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"optimiser.ema": 0.8, "optimiser.clip": 0.5, "optimiser.warmup": 3, "optimiser.mix_warmup": 20},
        {"optimiser.name": "adamw", "class_weights": "0.5,2", "augment.brightness": 0.3, "augment.scale": 0.2},
        {"model": "order_se", "classes": 3, "channels": 1},
        {"model": "mkunet_t", "optimiser.ema": 0.8},  # holds heads that the loss does not reach
    ],
    ids=["plain", "averaged-clipped-warm", "adamw", "classes-gray", "idle-heads"],
)
def test_every_member_is_the_run_with_its_seed(more: dict[str, Any], tmp_path: Path) -> None:
    both(tmp_path, **more)
    for seed in (0, 3):
        one, other = (tmp_path / kind / f"seed-{seed}" for kind in ("alone", "together"))
        assert_same(one, other)
        a, b = (read_manifest(folder) for folder in (one, other))
        assert (a.data, a.seeds, a.kind, a.outcome) == (b.data, b.seeds, b.kind, "done")
        assert {**a.config, "out": None} == {**b.config, "out": None}
        assert {p.name for p in one.iterdir()} == {p.name for p in other.iterdir()}
        load_segmenter(str(other), device=torch.device("cpu"))
    one, other = (tmp_path / "together" / f"seed-{seed}" / "metrics.jsonl" for seed in (0, 3))
    assert one.read_bytes() != other.read_bytes()


def test_one_update_leaves_the_state_of_a_run_alone(tmp_path: Path) -> None:
    """Weights, statistics, running averages of the gradient: before rounding has had time to grow."""
    both(tmp_path, **{"phantom.count": 8, "batch": 5, "epochs": 1, "optimiser.ema": 0.5})
    for seed in (0, 3):
        found = [
            Checkpoints(tmp_path / kind / f"seed-{seed}" / "checkpoints").latest() for kind in ("alone", "together")
        ]
        assert [each.step for each in found if each] == [1, 1]
        one, other = (each.state for each in found if each)
        for kind, name in (("modules", "model"), ("modules", "ema")):
            for key, value in one[kind][name].items():
                torch.testing.assert_close(other[kind][name][key], value, rtol=1e-3, atol=1e-5)
        for number, slots in one["optimizers"]["optimiser"]["state"].items():
            for slot, value in slots.items():
                yours = other["optimizers"]["optimiser"]["state"][number][slot]
                assert float((yours - value).norm()) <= 1e-3 * float(value.norm()) + 1e-9, (number, slot)


def test_members_of_different_length_keep_their_own(tmp_path: Path) -> None:
    """Split by group, the seeds' training sets differ in size, and so do the numbers of updates."""
    more = {"phantom.count": 15, "batch": 4, "epochs": 2, "optimiser.lr": 1e-5}
    both(tmp_path, "0,1", **more)
    lengths = set()
    for seed in (0, 1):
        one, other = (tmp_path / kind / f"seed-{seed}" for kind in ("alone", "together"))
        assert_same(one, other)
        lengths.add(len(read_metrics(one / "metrics.jsonl")))
    assert len(lengths) > 1


def test_a_run_alone_goes_on_from_a_member_and_a_member_from_a_run(tmp_path: Path) -> None:
    train(settings(out=tmp_path / "whole", seed=1))
    folder = tmp_path / "seed-1"

    def cut() -> None:
        """Back to the checkpoint of step 5, as a killed run leaves it."""
        (folder / "checkpoints" / "step-00000009.safetensors").unlink(missing_ok=True)
        about = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**about, "outcome": "running"}))

    train_together(settings(out=tmp_path, seeds="1", epochs=3))
    steps = Checkpoints(folder / "checkpoints").steps()
    assert len(steps) == 2
    (folder / "checkpoints" / f"step-{steps[-1]:08d}.safetensors").unlink()
    cut()
    train(settings(out=folder, seed=1))
    assert_same(tmp_path / "whole", folder)
    (folder / "checkpoints" / f"step-{steps[-1]:08d}.safetensors").unlink()
    cut()
    train_together(settings(out=tmp_path, seeds="1"))
    assert_same(tmp_path / "whole", folder)


def start(folder: Path) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "laworder.segmentation.train_command"])
    words = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items() if key not in ("data", "epochs")]
    words += ["--epochs=8", "--seeds=0-2", f"--out={folder}", "--optimiser.ema=0.9"]
    process = context.Process(target=main, args=(["seg", "train", "phantom", *words],))
    process.start()
    return process


@pytest.mark.slow
def test_killed_members_go_on_to_the_same_bits(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    whole.join(200)
    assert whole.exitcode == 0
    for number, after in enumerate((0, 4, 11)):
        process, log = start(tmp_path / "cut"), tmp_path / "cut" / f"seed-{number}" / "metrics.jsonl"
        while process.is_alive() and not (log.exists() and log.read_bytes().count(b"\n") > after):
            time.sleep(0.0005)
        process.kill()  # right after the lines of one member were written, before the others' are
        process.join(60)
        assert process.exitcode == -9
    last = start(tmp_path / "cut")
    last.join(200)
    assert last.exitcode == 0
    for seed in range(3):
        one, other = (tmp_path / name / f"seed-{seed}" for name in ("whole", "cut"))
        assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
        for name in ("best.safetensors", f"step-{Checkpoints(one / 'checkpoints').steps()[-1]:08d}.safetensors"):
            assert (one / "checkpoints" / name).read_bytes() == (other / "checkpoints" / name).read_bytes()


@pytest.mark.slow
def test_a_signal_saves_every_member(tmp_path: Path) -> None:
    process, log = start(tmp_path / "cut"), tmp_path / "cut" / "seed-0" / "metrics.jsonl"
    while process.is_alive() and not (log.exists() and log.read_bytes().count(b"\n") > 2):
        time.sleep(0.0005)
    process.terminate()
    process.join(60)
    assert process.exitcode == 143
    steps = [Checkpoints(tmp_path / "cut" / f"seed-{seed}" / "checkpoints").steps()[-1] for seed in range(3)]
    lines = [read_metrics(tmp_path / "cut" / f"seed-{seed}" / "metrics.jsonl")[-1]["step"] for seed in range(3)]
    assert steps == lines
    assert read_manifest(tmp_path / "cut" / "seed-2").outcome == "stopped by SIGTERM"


def test_a_member_that_diverges_stops_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"n": 0}
    forward = Update._forward

    def poisoned(self: Update, *args: Any) -> tuple[torch.Tensor, ...]:
        calls["n"] += 1
        terms, *buffers = forward(self, *args)
        spoil = torch.tensor([[0.0], [float("nan") if calls["n"] >= 4 else 0.0]])
        return terms + spoil, *buffers

    monkeypatch.setattr(Update, "_forward", poisoned)
    with pytest.raises(NonFiniteError, match="step 4: the loss is nan on colon"):
        train_together(settings(out=tmp_path, seeds="0,1"))
    good, bad = (read_metrics(tmp_path / f"seed-{seed}" / "metrics.jsonl") for seed in (0, 1))
    assert [line["step"] for line in bad] == [1, 2, 3]
    assert len(good) > 4
    assert read_manifest(tmp_path / "seed-0").outcome == "done"
    assert read_manifest(tmp_path / "seed-1").outcome.startswith("failed: NonFiniteError")
    kept = Checkpoints(tmp_path / "seed-1" / "checkpoints").latest()
    assert kept is not None
    assert kept.step == 3
    assert all(bool(tensor.isfinite().all()) for tensor in kept.state["modules"]["model"].values())


def test_compile_reaches_the_pass_and_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda f: compiled.append(f.__name__) or f)
    train_together(settings(out=tmp_path, seeds="0", epochs=1, compile=True))
    assert {"_forward", "_move"} <= set(compiled)


def test_finished_members_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_together(settings(out=tmp_path, seeds="0", epochs=1))
    before = (tmp_path / "seed-0" / "metrics.jsonl").stat().st_mtime_ns
    words = [f"--{key.replace('_', '-')}={value}" for key, value in SMALL.items() if key not in ("data", "epochs")]
    assert main(["seg", "train", "phantom", *words, "--epochs=1", "--seeds=0-1", f"--out={tmp_path}"]) == 0
    assert (tmp_path / "seed-0" / "metrics.jsonl").stat().st_mtime_ns == before
    assert capsys.readouterr().out.count("seed ") == 2


@pytest.mark.parametrize("name", ["ademamix", "adamw"])
def test_the_rules_are_the_libraries_rules(name: str) -> None:
    torch.manual_seed(0)
    chosen = Optimiser(name=name, lr=1e-2, weight_decay=0.1, mix_warmup=30)  # type: ignore[arg-type]
    nets = [torch.nn.Linear(3, 2).double() for _ in range(2)]
    packed = Packed([dict(net.named_parameters()) for net in nets], device=torch.device("cpu"))
    optimisers = [build_optimiser(net, chosen) for net in nets]
    rule = rules.RULES[name]
    state = {slot: torch.zeros_like(packed.flat) for slot in rule.slots}
    for step in range(1, 61):
        gradient = torch.randn_like(packed.flat)
        factor = 1 / step
        for index, (net, optimiser) in enumerate(zip(nets, optimisers, strict=True)):
            for key, value in packed.member(index, gradient).items():
                net.get_parameter(key).grad = value
            optimiser.param_groups[0]["lr"] = chosen.lr * factor
            optimiser.step()
        row = torch.tensor([rules.scalars(chosen, step, factor, active=True)] * 2, dtype=torch.float64)
        spread = {key: packed.spread(column) for key, column in zip(rules.SCALARS, row.unbind(1), strict=True)}
        theta, state = rule.update(packed.flat, gradient, state, spread, chosen.weight_decay)
        packed.flat.copy_(theta)
    for index, net in enumerate(nets):
        for key, value in packed.member(index).items():
            torch.testing.assert_close(value, net.get_parameter(key).detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"accumulate": 2}, "seeds: several at once cannot be trained with accumulate 2; leave that out"),
        ({"patience": 3, "channels_last": True}, "seeds: several at once cannot be trained with patience 3, channels_"),
        ({"seeds": "1-x"}, "seeds: expected such as 0-4 or 0,2,5, not '1-x'"),
        ({"seeds": "1,1"}, "seeds: '1,1' names one twice"),
        ({"cache_gb": 1e-6}, "seeds: several at once train from the device's memory, and all pairs take 0.00023 GB"),
        ({"model": "egeunet"}, "seeds: egeunet holds GroupNorm, which several at once cannot share"),
        ({"model": "order_1"}, "unknown model 'order_1'; did you mean 'order_"),
    ],
)
def test_what_only_a_run_alone_can_do_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        train_together(settings(**{"out": tmp_path, "seeds": "0-1", **more}))
    assert str(caught.value).startswith(message)


def test_seeds_become_folders(tmp_path: Path) -> None:
    members = members_of(settings(out=tmp_path, seeds="0-2,7"))
    assert [(m.seed, m.out.name, m.seeds) for m in members] == [(s, f"seed-{s}", None) for s in (0, 1, 2, 7)]
