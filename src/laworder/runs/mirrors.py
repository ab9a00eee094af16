"""A run's metrics in TensorBoard or Weights & Biases, beside metrics.jsonl, which stays the truth.

Both are fed from the log: what a resumed run had shown already is not shown twice, and what was lost is shown again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from laworder.errors import MissingExtraError, UserError
from laworder.runs.metrics_log import Mirror
from laworder.runs.run import Run

Where = Literal["auto", "none", "tensorboard", "wandb"]


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn: finite numbers, without the step itself."""
    found = {name: value for name, value in values.items() if name != "step" and isinstance(value, (int, float))}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


class TensorBoard:
    """Event files in the run's folder `tensorboard`, written anew from the log each time that the run begins."""

    def __init__(self, run: Run) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("tensorboard", "track") from error
        self._make, self._folder, self._writer = SummaryWriter, run.folder / "tensorboard", None

    def begin(self, lines: list[dict[str, Any]]) -> None:
        self.close()
        for old in self._folder.glob("events.*"):
            old.unlink()
        self._writer = self._make(str(self._folder))
        for line in lines:
            self.write(line["step"], line)
        self._writer.flush()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        assert self._writer is not None, "begin comes first"
        for name, value in numbers(values).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandB:
    """A run of Weights & Biases that is continued when this one is: its id is a function of the folder and its start.

    What is uploaded cannot be taken back, so lines are added from the first one on that it does not have.
    """

    def __init__(self, run: Run, *, project: str = "laworder") -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports] an extra that few have
        except ImportError as error:
            raise UserError("log: wandb is not installed: pip install wandb, or log to tensorboard or none") from error
        identity = f"{run.folder.resolve()} {run.manifest.started}"
        self._run = wandb.init(
            project=project,
            id=hashlib.sha256(identity.encode()).hexdigest()[:16],
            name=run.folder.name,
            dir=str(run.folder),
            config=run.manifest.config,
            resume="allow",
        )
        self._next = int(self._run.step)

    def begin(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self.write(line["step"], line)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        if step >= self._next:
            self._run.log(numbers(values), step=step)
            self._next = step + 1

    def close(self) -> None:
        self._run.finish()


def chosen(where: Where) -> Where:
    """What `auto` means here: TensorBoard where it is installed, else nothing."""
    if where != "auto":
        return where
    return "tensorboard" if importlib.util.find_spec("tensorboard") else "none"


@contextmanager
def mirrored(run: Run, where: Where) -> Iterator[None]:
    """Show the metrics of `run` there, too, as long as the context lasts. Ranks that do not write show nothing."""
    kind = chosen(where)
    if kind == "none" or not run.writes or run.finished:
        yield
        return
    mirror: TensorBoard | WandB = TensorBoard(run) if kind == "tensorboard" else WandB(run)
    shown: Mirror = mirror
    run.metrics.mirrors.append(shown)
    try:
        yield
    finally:
        run.metrics.mirrors.remove(shown)
        mirror.close()
