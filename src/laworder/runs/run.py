"""A run is a folder; `Run` is the time that one process spends in it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from laworder.errors import UserError
from laworder.runs import manifest as manifests
from laworder.runs.checkpoint import Checkpoints
from laworder.runs.files import sweep
from laworder.runs.lock import Lock
from laworder.runs.manifest import Manifest
from laworder.runs.metrics_log import MetricsLog
from laworder.runs.progress import Progress
from laworder.runs.signals import StopRequest

_LOG = logging.getLogger(__name__)


class Run:
    """A run folder, entered: locked, its manifest written, stop signals heard.

        runs/polyps/  manifest.json  metrics.jsonl  timing.jsonl  checkpoints/  lock

    folder:     made where absent; a folder with files that are no run is refused
    config:     the resolved config (dataclass or mapping); a resumption must have the same, see below
    kind:       what runs, e.g. "seg train"; for `reproduce`
    seeds:      name → seed
    data:       name → hash; on resumption other data are refused
    command:    the command line; that of this process where None
    may_change: dotted config keys that may differ on resumption because they do not touch the result
    may_grow:   dotted config keys whose number may rise on resumption (steps); a finished run then goes on
    rank:       of `world` processes only rank 0 locks and writes; the others read checkpoints
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        config: Any,
        kind: str,
        seeds: Mapping[str, int],
        data: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        device: str | torch.device = "cpu",
        keep: int = 2,
        may_change: Collection[str] = (),
        may_grow: Collection[str] = (),
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.folder = Path(folder)
        self.rank, self.world, self.device = rank, world, torch.device(device)
        self.may_change, self.may_grow = frozenset(may_change), frozenset(may_grow)
        self.manifest = Manifest(
            kind=kind,
            command=list(manifests.command_line() if command is None else command),
            config=manifests.jsonable(config),
            seeds={name: int(seed) for name, seed in seeds.items()},
            data=dict(data or {}),
            device=manifests.describe_device(device),
        )
        self.checkpoints = Checkpoints(self.folder / "checkpoints", keep=keep)
        self.metrics = MetricsLog(self.folder / "metrics.jsonl")
        self.timing = MetricsLog(self.folder / "timing.jsonl")
        self.stop = StopRequest()
        self.finished = False
        """The run was finished before this process entered it: there is nothing to do."""
        self._exits = ExitStack()

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def __enter__(self) -> Run:
        with ExitStack() as exits:
            if self.writes:
                self._make_folder()
                exits.enter_context(Lock(self.folder))
                self.checkpoints.folder.mkdir(exist_ok=True)
                self._sweep()
            self._begin_or_resume()
            exits.enter_context(self.stop)
            self._exits = exits.pop_all()
        return self

    def _make_folder(self) -> None:
        try:
            present = {p.name for p in self.folder.iterdir()} if self.folder.is_dir() else set()
            if present and not present & {manifests.NAME, "lock"}:
                raise UserError(f"{self.folder} holds other files and is no run; use a new or empty folder")
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {self.folder}: {error.strerror}") from error

    def _sweep(self) -> None:
        for leftover in sweep(self.folder):
            _LOG.info("removed %s, left by a write that was cut off", leftover.name)
        self.checkpoints.sweep()

    def _begin_or_resume(self) -> None:
        if not (self.folder / manifests.NAME).exists():
            if self.writes:
                self.manifest.write(self.folder)
            return
        new, old = self.manifest, manifests.read_manifest(self.folder)
        changed = manifests.check_same_run(old, new, self.folder, may_change=self.may_change, may_grow=self.may_grow)
        self.finished = old.outcome == "done" and not any(key in self.may_grow for key in changed)
        self.manifest = old
        if self.finished:
            _LOG.info("%s was finished on %s; there is nothing to do", self.folder, old.ended)
        elif self.writes:
            self._note_resumption(old, new, changed)

    def _note_resumption(self, old: Manifest, new: Manifest, changed: Mapping[str, tuple[Any, Any]]) -> None:
        steps = self.checkpoints.steps()
        entry: dict[str, Any] = {"started": new.started, "step": steps[-1] if steps else 0}
        entry["after"] = "killed" if old.outcome == "running" else old.outcome
        for name in ("command", "device", "versions", "git"):
            if getattr(old, name) != getattr(new, name):
                entry[name] = getattr(new, name)
        if changed:
            entry["changed"] = {key: list(pair) for key, pair in changed.items()}
        if "device" in entry or "versions" in entry:
            _LOG.warning("%s was begun with another device or other libraries: bits may differ", self.folder)
        old.resumptions.append(entry)
        old.config, old.outcome, old.ended = new.config, "running", None
        old.write(self.folder)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._exits:
            self.metrics.close()
            self.timing.close()
            if self.writes and not self.finished:
                self._close(error)

    def _close(self, error: BaseException | None) -> None:
        self.manifest.outcome = _outcome(error)
        self.manifest.ended = manifests.now()
        steps = self.checkpoints.steps()
        self.manifest.step = steps[-1] if steps else None
        try:
            self.manifest.write(self.folder)
        except UserError as second:
            if error is None:
                raise
            _LOG.warning("%s", second)  # the disk is full, say: the first error is the one to tell

    def progress(self, **settings: Any) -> Progress:
        """tqdm(**settings) on stderr: silent unless stderr is a terminal, and on ranks that do not write."""
        return Progress(**settings) if self.writes else Progress(**{**settings, "disable": True})


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "done"
    if isinstance(error, SystemExit):  # Stopped says which signal
        return str(error) if str(error).startswith("stopped") else f"failed: exit {error.code}"
    if isinstance(error, KeyboardInterrupt):
        return "stopped by SIGINT"
    return f"failed: {type(error).__name__}: {error}"
