"""train_loop: what an update is, resumption, stops, numbers that are none."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_run
from pytorch_optimizer import AdEMAMix
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from toy_run import STEPS, Toy, enter, settings, train

from laworder.errors import UserError
from laworder.runs import (
    Batches,
    CheckpointError,
    NonFiniteError,
    Plan,
    Run,
    Stopped,
    Task,
    batch_indices,
    load_checkpoint,
    read_manifest,
    read_metrics,
    sha256_file,
    train_loop,
)


def whole(folder: Path, task: Toy | None = None, **changed: Any) -> Path:
    config = settings(**changed)
    with enter(folder, config) as run:
        train(run, task or Toy(), config)
    return folder


def log(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder / "metrics.jsonl")


def final(folder: Path) -> str:
    return sha256_file(folder / "checkpoints" / f"step-{STEPS:08d}.safetensors")


class BrokenError(Exception):
    """What ends a process of ours in the midst of things."""


class Breaking(Toy):
    """A toy whose process dies in update `at`, after the weights have changed."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def after_step(self, step: int) -> None:
        if step == self.at:
            raise BrokenError
        super().after_step(step)


def broken(folder: Path, at: int, **changed: Any) -> Path:
    with pytest.raises(BrokenError):
        whole(folder, Breaking(at), **changed)
    return folder


# --- an update ------------------------------------------------------------------------------------------------------


class Line(Task):
    """y = w·x with a loss of (w·x)²/2, small enough to be done by hand."""

    def __init__(self, rate: float = 0.1, optimizer: Any = torch.optim.SGD) -> None:
        self.net = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.net.weight, 2.0)
        super().__init__(modules={"net": self.net}, optimizers={"o": optimizer(self.net.parameters(), lr=rate)})

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:  # noqa: ARG002
        loss = (self.net(batch[0]) ** 2 / 2).mean()
        return loss, {"double": 2 * loss.detach(), "three": 3}


X = torch.tensor([[0.5], [1.0], [1.5], [2.0], [-1.0]])


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (2, None), (3, 0.7)])
def test_updates_are_what_one_computes_by_hand(accumulate: int, clip: float | None, tmp_path: Path) -> None:
    task = Line()
    plan = Plan(steps=4, seed=3, accumulate=accumulate, clip=clip, schedule=lambda k: 1 / k)
    with Run(tmp_path / "r", config={}, kind="t", seeds={}) as run:
        result = train_loop(run, task, Batches(dataset=TensorDataset(X), batch_size=2), plan)
    assert (result.step, result.resumed, result.already_done) == (4, 0, False)
    w = 2.0
    for k, line in enumerate(log(tmp_path / "r"), start=1):
        numbers = range((k - 1) * accumulate, k * accumulate)
        micros = [X[batch_indices(3, m, batch_size=2, n=5)].double() for m in numbers]
        losses = [float(((w * x) ** 2 / 2).mean()) for x in micros]
        gradient = sum(float((w * x**2).mean()) for x in micros) / accumulate
        assert line["step"] == k
        assert line["loss"] == pytest.approx(sum(losses) / accumulate, rel=1e-5)
        assert line["double"] == pytest.approx(2 * line["loss"], rel=1e-5)
        assert line["three"] == 3
        assert line["grad_norm"] == pytest.approx(abs(gradient), rel=1e-5)
        assert line["lr"] == pytest.approx(0.1 / k)
        w -= 0.1 / k * (gradient if clip is None else gradient * min(1, clip / abs(gradient)))
    assert task.net.weight.item() == pytest.approx(w, rel=1e-5)


def test_every_micro_step_draws_anew(tmp_path: Path) -> None:
    """Also where the data draw the same: dropout in two micro-batches of one update must differ."""
    drawn: list[float] = []

    class Drawing(Line):
        def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
            drawn.append(float(torch.rand(1, dtype=torch.float64)))
            return super().micro_step(batch, step, micro)

    with Run(tmp_path, config={}, kind="t", seeds={}) as run:
        batches = Batches(dataset=TensorDataset(X), batch_size=2)
        train_loop(run, Drawing(), batches, Plan(steps=5, seed=0, accumulate=3))
    assert len(set(drawn)) == 15


def test_what_is_logged_saved_and_evaluated_when(tmp_path: Path) -> None:
    asked: list[int] = []

    def evaluate(step: int) -> dict[str, float]:
        asked.append(step)
        return {"val": -((step - 6) ** 2) + (math.nan if step == 3 else 0)}

    plan = Plan(steps=10, seed=0, log_every=4, save_every=5, eval_every=3, best="val")
    with Run(tmp_path / "r", config={}, kind="t", seeds={}, keep=9) as run:
        train_loop(run, Line(), Batches(dataset=TensorDataset(X), batch_size=2), plan, evaluate=evaluate)
    assert asked == [3, 6, 9, 10]
    assert [line["step"] for line in log(tmp_path / "r")] == [3, 4, 6, 8, 9, 10]
    assert [line["step"] for line in log(tmp_path / "r") if "val" in line] == [3, 6, 9, 10]
    assert math.isnan(log(tmp_path / "r")[0]["val"])
    assert run.checkpoints.steps() == [5, 6, 10], "a best state is saved under its step, too"
    assert run.checkpoints.best().step == 6
    assert [line["step"] for line in read_metrics(tmp_path / "r" / "timing.jsonl")] == [3, 4, 6, 8, 9, 10]


def test_best_by_the_smallest(tmp_path: Path) -> None:
    plan = Plan(steps=4, seed=0, eval_every=1, best="val", best_mode="min")
    with Run(tmp_path / "r", config={}, kind="t", seeds={}) as run:
        evaluate = {1: 3.0, 2: 1.0, 3: 1.0, 4: 2.0}
        batches = Batches(dataset=TensorDataset(X), batch_size=2)
        train_loop(run, Line(), batches, plan, evaluate=lambda k: {"val": evaluate[k]})
    assert run.checkpoints.best().step == 2


def test_a_best_that_is_never_evaluated_is_named(tmp_path: Path) -> None:
    plan = Plan(steps=1, seed=0, eval_every=1, best="dice")
    with (
        pytest.raises(UserError, match=r"best is 'dice'.*it gives val"),
        Run(tmp_path, config={}, kind="t", seeds={}) as run,
    ):
        train_loop(run, Line(), Batches(dataset=TensorDataset(X), batch_size=2), plan, evaluate=lambda _: {"val": 1.0})


def test_evaluation_leaves_modes_and_randomness_alone(tmp_path: Path) -> None:
    """The toy's evaluation draws numbers and leaves the network in eval mode: training must not notice."""
    with enter(tmp_path / "often", settings()) as run:
        train(run, Toy(), settings(), eval_every=1, best=None)
    with enter(tmp_path / "never", settings()) as run:
        train(run, Toy(), settings(), eval_every=0, best=None)
    losses = [[line["loss"] for line in log(tmp_path / name)] for name in ("often", "never")]
    assert losses[0] == losses[1]


def test_groups_keep_their_own_rates(tmp_path: Path) -> None:
    class Two(Line):
        def __init__(self) -> None:
            super().__init__()
            groups = [{"params": [self.net.weight], "lr": 0.1}, {"params": [nn.Parameter(torch.ones(1))], "lr": 0.4}]
            self.optimizers = {"o": torch.optim.SGD(groups)}

    with Run(tmp_path, config={}, kind="t", seeds={}) as run:
        plan = Plan(steps=2, seed=0, schedule=lambda k: 1 / k)
        train_loop(run, Two(), Batches(dataset=TensorDataset(X), batch_size=2), plan)
    assert [(line["lr_0"], line["lr_1"]) for line in log(tmp_path)] == [(0.1, 0.4), (0.05, 0.2)]


def test_a_rate_that_is_a_tensor_is_set_in_place(tmp_path: Path) -> None:
    """As capturable and compiled optimisers want it."""
    task = Line(rate=torch.tensor(0.1))  # type: ignore[arg-type]
    rate = task.optimizers["o"].param_groups[0]["lr"]
    with Run(tmp_path, config={}, kind="t", seeds={}) as run:
        plan = Plan(steps=2, seed=0, schedule=lambda k: 1 / k)
        train_loop(run, task, Batches(dataset=TensorDataset(X), batch_size=2), plan)
    assert task.optimizers["o"].param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.05)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"accumulate": 0}, {"save_every": 0}, {"log_every": -1}, {"eval_every": -1}, {"clip": 0.0}]
)
def test_impossible_plans_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Plan(**{"steps": 1, "seed": 0, **wrong})


@pytest.mark.parametrize("wrong", [{"patience": 2}, {"patience": 0, "best": "dice", "eval_every": 1}])
def test_a_patience_that_waits_for_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="patience is"):
        Plan(steps=9, seed=0, **wrong)


def test_patience_is_counted_in_evaluations_since_the_best() -> None:
    plan = Plan(steps=20, seed=0, eval_every=3, best="dice", patience=2)
    assert [step for step in range(1, 21) if plan.exhausted(step, 6)] == [12, 15, 18]
    assert [step for step in range(1, 21) if plan.exhausted(step, None)] == [6, 9, 12, 15, 18]
    assert not plan.exhausted(20, 6)  # the last update ends it anyway


@pytest.mark.parametrize("wrong", [{"best": "dice"}, {"best_mode": "most"}])
def test_a_best_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="best"):
        Plan(**{"steps": 1, "seed": 0, **wrong})


# --- resumption -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("at", [1, 4, 5, 6, 13, 24])
def test_resumed_to_the_same_bits_wherever_it_broke(at: int, accumulate: int, tmp_path: Path) -> None:
    """Also between an evaluation and its save (6), and after the last update (24)."""
    one = whole(tmp_path / "whole", accumulate=accumulate)
    two = broken(tmp_path / "broken", at, accumulate=accumulate)
    assert whole(two, accumulate=accumulate) == two
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()
    assert final(one) == final(two)
    assert sha256_file(one / "checkpoints/best.safetensors") == sha256_file(two / "checkpoints/best.safetensors")


def test_resumed_from_the_checkpoint_before_a_damaged_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = whole(tmp_path / "whole")
    two = broken(tmp_path / "broken", 14)
    newest = two / "checkpoints" / "step-00000012.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    whole(two)
    assert "step-00000012.safetensors is damaged" in caplog.text
    assert (two / "checkpoints" / "step-00000012.rejected").exists()
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()
    assert final(one) == final(two)


def test_the_published_optimiser_resumes_to_the_same_bits(tmp_path: Path) -> None:
    def go(name: str, *, until: int | None) -> Path:
        task, plan = Line(rate=1e-2, optimizer=AdEMAMix), Plan(steps=12, seed=0, save_every=4)

        def evaluate(step: int) -> dict[str, float]:
            if step == until:
                raise BrokenError
            return {}

        with Run(tmp_path / name, config={}, kind="t", seeds={}) as run:
            batches = Batches(dataset=TensorDataset(X), batch_size=2)
            train_loop(run, task, batches, Plan(**{**vars(plan), "eval_every": 1}), evaluate=evaluate)
        return tmp_path / name

    one = go("whole", until=None)
    with pytest.raises(BrokenError):
        go("broken", until=7)
    two = go("broken", until=None)
    assert (one / "metrics.jsonl").read_bytes() == (two / "metrics.jsonl").read_bytes()
    name = "checkpoints/step-00000012.safetensors"
    assert sha256_file(one / name) == sha256_file(two / name)


def test_an_fp32_state_beside_bf16_weights_keeps_its_bits(tmp_path: Path) -> None:
    class Master(torch.optim.Optimizer):
        """Keeps the weights it steps in fp32, which torch's own loading would round."""

        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
            for group in self.param_groups:
                for p in group["params"]:
                    master = self.state[p].setdefault("master", p.detach().float().clone())
                    master.sub_(group["lr"] * p.grad.float())
                    p.data.copy_(master)

    def go(steps: int, folder: str) -> Tensor:
        task = Line(rate=1e-3)
        task.net.bfloat16()
        task.optimizers["o"] = Master(task.net.parameters(), 1e-3)
        data = TensorDataset(X.bfloat16())
        with Run(tmp_path / folder, config={"steps": steps}, kind="t", seeds={}, may_grow=("steps",)) as run:
            train_loop(run, task, Batches(dataset=data, batch_size=2), Plan(steps=steps, seed=0))
        return task.optimizers["o"].state[task.net.weight]["master"]

    at_once = go(6, "once")
    go(3, "twice")
    resumed = go(6, "twice")
    assert resumed.dtype == torch.float32
    assert torch.equal(resumed, at_once)


def test_a_run_that_grew_equals_one_that_was_long_from_the_start(tmp_path: Path) -> None:
    def go(name: str, steps: int) -> Any:
        with Run(tmp_path / name, config={"steps": steps}, kind="t", seeds={}, may_grow=("steps",)) as run:
            plan = Plan(steps=steps, seed=0, save_every=3)
            return train_loop(run, Line(), Batches(dataset=TensorDataset(X), batch_size=2), plan)

    go("long", 8)
    assert go("short", 5).step == 5
    assert go("short", 5).already_done
    grown = go("short", 8)
    assert (grown.step, grown.resumed, grown.already_done) == (8, 5, False)
    assert log(tmp_path / "long") == log(tmp_path / "short")


def test_a_finished_run_returns_at_once(tmp_path: Path) -> None:
    folder = whole(tmp_path / "r", steps=3)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != "lock"}
    with enter(folder, settings(steps=3)) as run:
        result = train(run, Toy(spoil=1), settings(steps=3))
    assert (result.step, result.already_done) == (3, True)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != "lock"} == before


@pytest.mark.parametrize(
    ("changed", "says"), [({"rate": 1.0}, r"rate was 0\.01 and is now 1\.0"), ({"accumulate": 2}, "accumulate was 1")]
)
def test_another_config_is_refused(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    broken(tmp_path / "r", 6)
    with pytest.raises(UserError, match=says):
        whole(tmp_path / "r", **changed)


def test_a_changed_plan_that_the_config_does_not_show_is_refused(tmp_path: Path) -> None:
    broken(tmp_path / "r", 6)
    with pytest.raises(UserError, match="seed 5, not 6"), enter(tmp_path / "r", settings()) as run:
        train(run, Toy(), settings(), seed=6)


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    broken(tmp_path / "r", 6)
    other = Toy()
    other.modules["net"] = nn.Linear(2, 2)
    with pytest.raises(UserError, match="the checkpoint's net does not fit the model"):
        whole(tmp_path / "r", other)
    other = Toy()
    other.optimizers["adam"].add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(UserError, match="the checkpoint's adam does not fit the optimiser"):
        whole(tmp_path / "r", other)
    del other.modules["ema"]
    with pytest.raises(UserError, match=r"holds modules \['ema', 'net'\], the run has \['net'\]"):
        whole(tmp_path / "r", other)


def test_all_checkpoints_damaged_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    broken(tmp_path / "r", 10)
    for path in (tmp_path / "r" / "checkpoints").glob("step-*"):
        path.write_bytes(b"")
    before = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="every checkpoint"):
        whole(tmp_path / "r")
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == before


# --- numbers that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "what"), [("loss", "the loss is nan"), ("gradient", "the gradient's norm is nan|inf")]
)
@pytest.mark.parametrize("at", [1, 5, 7])
def test_a_non_finite_number_stops_before_the_update(at: int, where: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=what) as caught:
        whole(tmp_path / "r", Toy(spoil=at, where=where), accumulate=2)
    message = str(caught.value)
    assert f"step {at}:" in message
    first = 2 * (at - 1)
    named = [f"#{i}" for m in (first, first + 1) for i in batch_indices(5, m, batch_size=3, n=toy_run.ITEMS)]
    assert all(name in message for name in named)
    assert [line["step"] for line in log(tmp_path / "r")] == list(range(1, at))
    assert read_manifest(tmp_path / "r").outcome.startswith("failed: NonFiniteError")
    # What is kept is the state before, running means included: that of a run that was to end there.
    kept = load_checkpoint(tmp_path / "r" / "checkpoints" / f"step-{at - 1:08d}.safetensors").state
    if at > 1:
        broken(tmp_path / "other", at, accumulate=2, save_every=1)
        other = load_checkpoint(tmp_path / "other" / "checkpoints" / f"step-{at - 1:08d}.safetensors").state
        for name, tensor in other["modules"]["net"].items():
            assert torch.equal(kept["modules"]["net"][name], tensor), name
    else:
        assert all(torch.equal(kept["modules"]["net"][k], v) for k, v in Toy().net.state_dict().items())


def test_only_the_images_of_the_bad_micro_batch_are_named(tmp_path: Path) -> None:
    class Named(Line):
        def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
            loss, parts = super().micro_step(batch, step, micro)
            return (loss / 0 if micro == 1 else loss), parts

        def names(self, batch: Any) -> list[str]:
            return [f"x={float(x)}" for x in batch[0]]

    with (
        pytest.raises(NonFiniteError, match="the loss is inf on ") as caught,
        Run(tmp_path, config={}, kind="t", seeds={}) as run,
    ):
        train_loop(run, Named(), Batches(dataset=TensorDataset(X), batch_size=2), Plan(steps=1, seed=0, accumulate=2))
    bad, good = (X[batch_indices(0, m, batch_size=2, n=5)].flatten().tolist() for m in (1, 0))
    assert all(f"x={x}" in str(caught.value) for x in bad)
    assert not any(f"x={x}" in str(caught.value) for x in good)


def test_names_by_default() -> None:
    task = Line()
    assert task.names({"name": ["a.png", "b.png"]}) == ["a.png", "b.png"]
    assert task.names({"index": torch.tensor([3, 4])}) == ["#3", "#4"]
    assert task.names([torch.ones(2)]) == []


# --- stops ----------------------------------------------------------------------------------------------------------


class SelfSignalling(Toy):
    def __init__(self, at: int, number: signal.Signals) -> None:
        super().__init__()
        self.at, self.number = at, number

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        if step == self.at:
            signal.raise_signal(self.number)
        return super().micro_step(batch, step, micro)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_finishes_the_step_saves_and_can_be_resumed(
    number: signal.Signals, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Stopped) as caught:
        whole(tmp_path / "r", SelfSignalling(7, number))
    assert caught.value.code == code
    assert "the same signal again kills at once" in capfd.readouterr().err
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == before
    assert log(tmp_path / "r")[-1]["step"] == 7
    manifest = read_manifest(tmp_path / "r")
    assert (manifest.outcome, manifest.step) == (f"stopped by {number.name}", 7)
    assert final(whole(tmp_path / "r")) == final(whole(tmp_path / "whole"))
    assert read_manifest(tmp_path / "r").resumptions[0]["step"] == 7


def test_a_signal_before_the_first_step(tmp_path: Path) -> None:
    def go() -> None:
        with enter(tmp_path / "r", settings()) as run:
            signal.raise_signal(signal.SIGTERM)
            train(run, Toy(), settings())

    with pytest.raises(Stopped):
        go()
    assert [p.name for p in (tmp_path / "r" / "checkpoints").iterdir()] == ["step-00000000.safetensors"]
    assert log(whole(tmp_path / "r")) == log(whole(tmp_path / "whole"))


def test_a_loop_of_another_kind_can_ask(tmp_path: Path) -> None:
    def go() -> None:
        with Run(tmp_path, config={}, kind="t", seeds={}) as run:
            run.stop.check()
            signal.raise_signal(signal.SIGTERM)
            run.stop.check()

    with pytest.raises(Stopped, match="stopped by SIGTERM"):
        go()
    assert read_manifest(tmp_path).outcome == "stopped by SIGTERM"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_off_the_main_thread_signals_keep_their_meaning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import threading

    caplog.set_level(logging.INFO)
    thread = threading.Thread(target=whole, args=(tmp_path / "r",), kwargs={"steps": 2, "workers": 1})
    thread.start()
    thread.join()
    assert read_manifest(tmp_path / "r").outcome == "done"


def test_a_full_disk_stops_the_run_with_the_last_good_state(tmp_path: Path) -> None:
    class Full(toy_run.SlowCheckpoints):
        def open_file(self, path: Path) -> Any:
            if "step-00000008" in path.name:
                raise OSError(28, "No space left on device")
            return super().open_file(path)

    def go() -> None:
        with enter(tmp_path / "r", settings()) as run:
            run.checkpoints = Full(run.checkpoints.folder)
            train(run, Toy(), settings())

    with pytest.raises(CheckpointError, match=r"step 8 could not.*step-00000006"):
        go()
    assert read_manifest(tmp_path / "r").outcome.startswith("failed: CheckpointError")
    assert final(whole(tmp_path / "r")) == final(whole(tmp_path / "whole"))
