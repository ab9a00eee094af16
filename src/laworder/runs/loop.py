"""The training loop: every update is a function of the state before it and of its number.

Update k = 1 … K:  θ_k = step(θ_{k−1}, Σ_m ∇ℓ(batch_{(k−1)·A + m}; θ_{k−1}) / A),  m = 0 … A − 1,  A = accumulate.

Checkpoint k is the state after update k, and `metrics.jsonl` holds the lines up to k when it is written. Whoever
resumes from it sees the same batches (batches.py), the same random numbers (randomness.py) and the same learning rate
(a function of k) as the run that was cut off, and therefore computes the same bits on a CPU.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, cast

import torch
from torch import Tensor

from laworder.errors import UserError
from laworder.runs.batches import Batches
from laworder.runs.checkpoint import load_checkpoint
from laworder.runs.distributed import from_first, mean_over_ranks
from laworder.runs.memory import keep_freed_memory
from laworder.runs.plan import Plan, Result
from laworder.runs.randomness import seed_all
from laworder.runs.run import Run
from laworder.runs.shards import clip_gradients, gradient_norm
from laworder.runs.signals import Stopped
from laworder.runs.task import BufferGuard, Task, capture, restore

_LOG = logging.getLogger(__name__)
Evaluate = Callable[[int], Mapping[str, float]]


class NonFiniteError(UserError):
    """A loss or a gradient that is not a number: the update was not made."""


def train_loop(run: Run, task: Task, batches: Batches, plan: Plan, *, evaluate: Evaluate | None = None) -> Result:
    """Train until `plan.steps`, from the last good checkpoint of `run` where there is one.

    evaluate(k) is called after update k with the generators seeded for it; what it returns joins line k of the log.
    Raises Stopped (a SystemExit with 143 or 130) after a signal, once the update at hand is finished and saved, and
    NonFiniteError before an update that would spoil the weights, once the state before it is saved.
    """
    if run.finished:
        done = run.manifest.step or 0
        return Result(step=done, resumed=done, already_done=True)
    return Loop(run, task, batches, plan, evaluate).go()


class Loop:
    """One training. `go` is all of it; who computes updates elsewhere calls `resume`, then `after` for each of them."""

    def __init__(self, run: Run, task: Task, batches: Batches, plan: Plan, evaluate: Evaluate | None) -> None:
        keep_freed_memory()
        self.run, self.task, self.batches, self.plan, self.evaluate = run, task, batches, plan, evaluate
        self.parameters = list(dict.fromkeys(p for group in self._groups() for p in group["params"]))
        # Before anything is restored: a checkpoint holds the rates of its step.
        self.base_rates = [float(group["lr"]) for group in self._groups()]
        self.guard = BufferGuard(task)
        self.best: dict[str, Any] = {"step": None, "value": None}
        self.saved: int | None = None

    def go(self) -> Result:
        first, plan, run = self.resume(), self.plan, self.run
        micro = plan.accumulate
        stream = self.batches.iterate(first * micro, plan.steps * micro, seed=plan.seed, rank=run.rank, world=run.world)
        bar = run.progress(total=plan.steps, initial=first, unit="step")
        with closing(cast("Any", stream)), bar:
            self._stop_if_asked(first, everyone=0.0)
            step = first
            while step < plan.steps and not plan.exhausted(step, self.best["step"]):
                step += 1
                record = self._one(step, stream)
                bar.update()
                bar.set_postfix(loss=f"{record['loss']:.4g}", refresh=False)
                self._stop_if_asked(step, everyone=record["stop"])
        if self.saved != step:  # patience ended between two checkpoints
            self.save(step)
        return Result(step=step, resumed=first, early=step < plan.steps)

    def resume(self) -> int:
        """Restore the last good checkpoint and cut the log back to it; how many updates it holds, 0 without one."""
        run = self.run
        found = run.checkpoints.latest() if run.writes else None
        agreed = from_first(found.step if found else -1, run.world, self.parameters[0].device)
        step = max(agreed, 0)
        if agreed >= 0 and found is None:
            found = load_checkpoint(run.checkpoints.path(step))
        if found is not None:
            self._check_and_restore(found.state)
            if run.writes:
                run.checkpoints.set_aside(after=step)
            _LOG.info("resumed from %s", found.path)
            self.saved = step
        if run.writes:
            run.metrics.truncate(step)
            run.timing.truncate(step)
        return step

    def _check_and_restore(self, state: Mapping[str, Any]) -> None:
        now = {"seed": self.plan.seed, "accumulate": self.plan.accumulate, "batch_size": self.batches.batch_size}
        for name, value in {**now, "world": self.run.world}.items():
            if state["loop"][name] != value:
                raise UserError(
                    f"{self.run.folder} was trained with {name} {state['loop'][name]}, not {value}: its data order "
                    "would change; set it back or use a new folder"
                )
        restore(self.task, state)
        self.best = state["loop"]["best"]

    def _one(self, step: int, stream: Iterator[Any]) -> dict[str, float]:
        """Update `step`, then whatever is due after it."""
        began = time.monotonic()
        record = self._update(step, stream)
        self.after(step, record, began)
        return record

    def after(self, step: int, record: Mapping[str, float], began: float) -> None:
        """Evaluate, log and save what is due after update `step`, which began at that monotonic time."""
        plan = self.plan
        evaluated: Mapping[str, float] = {}
        if self.evaluate is not None and plan.due(plan.eval_every, step):
            evaluated = self._evaluate(self.evaluate, step)
            assert not evaluated.keys() & record.keys(), "evaluated numbers need names of their own (val_…)"
        logged = {k: v for k, v in record.items() if k != "stop"}
        if self.run.writes and (plan.due(plan.log_every, step) or evaluated):
            self.run.metrics.write(step, {**logged, **evaluated})
            self.run.timing.write(step, {"time": time.time(), "seconds": time.monotonic() - began})
        is_best = self._is_best(step, evaluated)
        if is_best or plan.due(plan.save_every, step):
            self.save(step, best=is_best)

    def _update(self, step: int, stream: Iterator[Any]) -> dict[str, float]:
        plan, task = self.plan, self.task
        self.guard.keep()
        for optimizer in task.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        seen: list[Any] = []
        tallies: list[Mapping[str, Tensor | float]] = []
        for micro in range(plan.accumulate):
            seen.append(next(stream))
            seed_all(plan.seed, step=step, rank=self.run.rank, stream=f"train/{micro}")
            loss, parts = task.micro_step(seen[-1], step, micro)
            (loss / plan.accumulate).backward()
            assert "loss" not in parts, "the loss is logged under that name; parts are its terms"
            tallies.append({"loss": loss, **parts})
        task.after_backward(step)
        norm = gradient_norm(self.parameters)
        record, losses = self._read(tallies, norm)
        factor = plan.schedule(step)
        record |= self._rates(factor)
        if not all(map(math.isfinite, [record["loss"], record["grad_norm"], *losses])):
            self._refuse(step, record, losses, seen)
        if plan.clip is not None:
            clip_gradients(self.parameters, plan.clip, norm)
        self._set_rates(factor)
        for optimizer in task.optimizers.values():
            optimizer.step()
        task.after_step(step)
        return record

    def _read(
        self, tallies: Sequence[Mapping[str, Tensor | float]], norm: Tensor
    ) -> tuple[dict[str, float], list[float]]:
        """Means over micro-batches and ranks, and this rank's losses, with one transfer from the device."""
        names = list(tallies[0])
        assert all(list(tally) == names for tally in tallies), "every micro-batch reports the same parts"
        loss = cast("Tensor", tallies[0]["loss"])
        dtype = torch.float64 if loss.dtype == torch.float64 else torch.float32
        asked = float(self.run.stop.requested is not None)
        values = [value for tally in tallies for value in tally.values()] + [norm, asked]
        own = torch.stack([torch.as_tensor(v, dtype=dtype, device=loss.device).detach().reshape(()) for v in values])
        shared = mean_over_ranks(own, self.run.world)
        mine, everyone = torch.stack([own, shared]).tolist()
        micros = [everyone[i : i + len(names)] for i in range(0, len(everyone) - 2, len(names))]
        record = {
            name: sum(column) / len(micros) for name, column in zip(names, zip(*micros, strict=True), strict=True)
        }
        record |= {"grad_norm": everyone[-2], "stop": everyone[-1]}
        return record, mine[: -2 : len(names)]

    def _refuse(self, step: int, record: Mapping[str, float], losses: list[float], seen: list[Any]) -> None:
        """Put the buffers back, keep the state before this update, and say which images it was."""
        self.guard.put_back()
        if self.saved != step - 1:
            self.save(step - 1)
        bad = [micro for micro, loss in enumerate(losses) if not math.isfinite(loss)]
        what = f"the loss is {losses[bad[0]]}" if bad else f"the gradient's norm is {record['grad_norm']}"
        names = [name for micro in bad or range(len(seen)) for name in self.task.names(seen[micro])]
        raise self.refusal(step, what, names)

    def refusal(self, step: int, what: str, names: Sequence[str]) -> NonFiniteError:
        """What is said when update `step` would spoil the weights."""
        where = f" on {', '.join(names)}" if names else ""
        return NonFiniteError(
            f"step {step}: {what}{where}; this update was not made and the state after step {step - 1} is kept in "
            f"{self.run.checkpoints.path(step - 1)}; look at these images, or lower the learning rate in a new run"
        )

    def _evaluate(self, evaluate: Evaluate, step: int) -> dict[str, float]:
        modes = [(m, m.training) for module in self.task.modules.values() for m in module.modules()]
        seed_all(self.plan.seed, step=step, rank=self.run.rank, stream="evaluate")
        evaluated = {name: float(value) for name, value in evaluate(step).items()}
        for module, training in modes:
            module.training = training
        return evaluated

    def _is_best(self, step: int, evaluated: Mapping[str, float]) -> bool:
        name = self.plan.best
        if name is None or not evaluated:
            return False
        if name not in evaluated:
            raise UserError(f"best is {name!r}, which the evaluation does not give; it gives {', '.join(evaluated)}")
        sign = 1 if self.plan.best_mode == "max" else -1
        value, before = evaluated[name], self.best["value"]
        if math.isnan(value) or (before is not None and sign * value <= sign * before):
            return False
        self.best = {"step": step, "value": value}
        return True

    def save(self, step: int, *, best: bool = False) -> None:
        """Write a checkpoint of the state after update `step`."""
        self.saved, writes = step, self.run.writes
        if not writes and not self.task.sharded:
            return
        captured = capture(self.task, keep=writes)
        if not writes:
            return
        self.run.metrics.sync()
        loop = {"seed": self.plan.seed, "accumulate": self.plan.accumulate, "batch_size": self.batches.batch_size}
        state = {**captured, "loop": {**loop, "world": self.run.world, "best": self.best}}
        self.run.checkpoints.save(step, state, best=best)

    def _stop_if_asked(self, step: int, *, everyone: float) -> None:
        # One process leaves as soon as it was asked; several, after the step in which the others were told.
        asked = self.run.stop.requested
        if everyone == 0 and (asked is None or self.run.world > 1):
            return
        if self.saved != step:
            self.save(step)
        raise Stopped(asked or signal.SIGTERM)

    def _groups(self) -> list[dict[str, Any]]:
        # Asked for anew each time: an optimiser's load_state_dict puts new groups in place of the old.
        return [group for optimizer in self.task.optimizers.values() for group in optimizer.param_groups]

    def _set_rates(self, factor: float) -> None:
        for group, base in zip(self._groups(), self.base_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(base * factor)
            else:
                group["lr"] = base * factor

    def _rates(self, factor: float) -> dict[str, float]:
        rates = [base * factor for base in self.base_rates]
        return {"lr": rates[0]} if len(set(rates)) == 1 else {f"lr_{i}": rate for i, rate in enumerate(rates)}
