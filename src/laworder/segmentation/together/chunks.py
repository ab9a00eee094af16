"""From one validation to the next: all members step together, then each is logged, judged and saved as a run alone is.

A member's update depends on its own number alone, so that members which were killed at different steps go on side by
side, each from where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from laworder.data.augment import Draw
from laworder.errors import UserError
from laworder.runs import Run, Stopped, batch_indices
from laworder.runs.loop import Loop
from laworder.runs.plan import Plan
from laworder.segmentation.feed import FedBatches
from laworder.segmentation.task import SegmentTask
from laworder.segmentation.together.rules import SCALARS, scalars
from laworder.segmentation.together.update import Inputs, Update
from laworder.segmentation.train import Validation

Report = list[list[float]]
"""One row an update: the loss, its terms, the gradient's norm."""


class Member:
    """One run among several. rows: where its training pairs lie in the set that all share."""

    def __init__(
        self, run: Run, task: SegmentTask, batches: FedBatches, plan: Plan, validate: Validation, rows: Tensor
    ) -> None:
        self.run, self.task, self.rows = run, task, rows
        self.loop = Loop(run, task, batches, plan, validate)
        self.count, self.step = len(batches.feed.names), 0
        self.failure: UserError | None = None

    def begin(self) -> None:
        """Restore the last good checkpoint."""
        self.step = self.loop.resume()

    @property
    def live(self) -> bool:
        return self.failure is None and self.step < self.loop.plan.steps

    def target(self) -> int:
        """The next update after which it validates; where it stands if it is done."""
        plan = self.loop.plan
        return min(plan.steps, (self.step // plan.eval_every + 1) * plan.eval_every) if self.live else self.step

    def positions(self, step: int) -> list[int]:
        """Which of its training pairs make up update `step`."""
        config = self.task.config
        return batch_indices(config.seed, step - 1, batch_size=config.batch, n=self.count).tolist()

    def inputs(self, step: int, *, active: bool) -> tuple[Int64[Tensor, " b"], Float[Tensor, "b 11"], list[float]]:
        """Its rows of `Inputs`; for a member that does not make this update, those of its first one, without effect."""
        step = step if active else 1
        settings = self.task.config.optimiser
        numbers = scalars(settings, step, self.loop.plan.schedule(step), active=active)
        return self.rows[self.positions(step)], _flat(self.task.drawn(self.task.config.batch, step, 0)), list(numbers)

    def told(self, first: int, report: Report, names: Sequence[str], seconds: float) -> None:
        """Log, judge and save what came of the updates from `first` on, each of which took so long."""
        for step, row in enumerate(report, start=first):
            record = dict(zip(["loss", *names, "grad_norm"], row, strict=True))
            if not all(map(math.isfinite, (record["loss"], record["grad_norm"]))):
                self._fail(step, record)
                return
            record["lr"] = self.task.config.optimiser.lr * self.loop.plan.schedule(step)
            self.step = step
            self.loop.after(step, record, time.monotonic() - seconds)

    def _fail(self, step: int, record: dict[str, float]) -> None:
        if self.loop.saved != step - 1:
            self.loop.save(step - 1)
        loss, norm = record["loss"], record["grad_norm"]
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
        names = [self.task.name_of(position) for position in self.positions(step)]
        self.failure = self.loop.refusal(step, what, names)

    def leave(self) -> None:
        """Save where it stands, unless that was done."""
        if self.loop.saved != self.step:
            self.loop.save(self.step)


def _flat(drawn: Draw) -> Float[Tensor, "b 11"]:
    return torch.cat([drawn.affine.flatten(1), *(column[:, None] for column in drawn[1:])], 1)


def advance(members: Sequence[Member], update: Update, names: Sequence[str]) -> int:
    """Every live member to its next validation, which is done; how many updates that took.

    A stop signal ends it after the update at hand; every member is saved before `Stopped` is raised.
    """
    targets, starts = [m.target() for m in members], [m.step for m in members]
    length = max(t - s for t, s in zip(targets, starts, strict=True))
    rows: list[Tensor] = []
    began = time.monotonic()
    for inputs in _ahead(members, starts, targets, length, update.task.device):
        if asked := _asked(members):
            break
        rows.append(update(inputs).clone())
    else:
        asked = _asked(members)
    told = torch.stack(rows, 1).tolist() if rows else [[] for _ in members]  # the one time that the host waits
    seconds = (time.monotonic() - began) / max(1, len(rows))
    for index, (member, start, target) in enumerate(zip(members, starts, targets, strict=True)):
        done = min(start + len(rows), target)
        if member.live and done > start:
            update.stack.give(index, _healthy_until(start, told[index][: done - start]))
            member.told(start + 1, told[index][: done - start], names, seconds)
    if asked:
        for member in members:
            member.leave()
        raise Stopped(asked)
    return len(rows)


def _healthy_until(start: int, report: Report) -> int:
    """The last update that was made: a member is left alone from its first non-finite number on."""
    good = (math.isfinite(row[0]) and math.isfinite(row[-1]) for row in report)
    return start + next((number for number, fine in enumerate(good) if not fine), len(report))


def _asked(members: Sequence[Member]) -> int | None:
    return next((m.run.stop.requested for m in members if m.run.stop.requested is not None), None)


def _ahead(
    members: Sequence[Member], starts: list[int], targets: list[int], length: int, device: torch.device
) -> Iterator[Inputs]:
    """The inputs of each update, made while the device works on the one before."""
    for number in range(1, length + 1):
        steps = [start + number for start in starts]
        each = [m.inputs(k, active=k <= t) for m, k, t in zip(members, steps, targets, strict=True)]
        rows, draws = torch.stack([e[0] for e in each]), torch.stack([e[1] for e in each])
        table = torch.tensor([e[2] for e in each])
        assert table.shape[1] == len(SCALARS)
        yield Inputs(*(_placed(tensor, device) for tensor in (rows, draws, table)))


def _placed(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, without waiting for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
