"""Checkpoints: `step-00000120.safetensors`, each whole or absent, each with a hash that is checked before use."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from laworder.errors import UserError
from laworder.runs.files import fsync_folder, partial_name, sweep
from laworder.runs.nested import decode, encode, tensor_names
from laworder.runs.tensorfile import DamagedFileError, read_metadata, read_tensors, verify, write_tensors

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d+)\.safetensors")
BEST = "best.safetensors"


class CheckpointError(UserError):
    """A checkpoint could not be written, or none can be used."""


@dataclass(frozen=True)
class Checkpoint:
    """step: updates done; state: what was saved; path: where it was."""

    step: int
    state: dict[str, Any]
    path: Path


def load_checkpoint(path: str | Path, *, only: Collection[str] | None = None) -> Checkpoint:
    """Verify and read one checkpoint; tensors on the CPU.

    only: the top-level entries wanted (`("modules",)` for the weights alone); the others are not read into memory.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    try:
        verify(path)
    except DamagedFileError as error:
        raise CheckpointError(f"{error}; use another checkpoint of the run") from error
    metadata = read_metadata(path)
    entries = json.loads(metadata["laworder"])
    chosen = {name: entry for name, entry in entries.items() if only is None or name in only}
    return Checkpoint(
        step=int(metadata["step"]),
        state=decode(chosen, read_tensors(path, list(tensor_names(chosen)))),
        path=path,
    )


class Checkpoints:
    """A folder of checkpoints, of which the newest `keep` stay, and `best.safetensors`.

    A save writes under a temporary name, fsyncs, renames, fsyncs the folder, and only then removes old ones.
    """

    def __init__(self, folder: str | Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise UserError(f"keep must be at least 1 checkpoint, not {keep}")
        self.folder, self.keep = Path(folder), keep

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    @property
    def best_path(self) -> Path:
        return self.folder / BEST

    def steps(self) -> list[int]:
        """Steps for which there is a file, rising. Whether it is whole is known only once it is loaded."""
        found = (_NAME.fullmatch(p.name) for p in self.folder.glob("step-*.safetensors"))
        return sorted(int(m.group(1)) for m in found if m)

    def open_file(self, path: Path) -> Any:
        """The unbuffered file that a save writes to. A seam for tests that make the disk slow or full."""
        return path.open("wb", buffering=0)

    def save(self, step: int, state: Mapping[str, Any], *, best: bool = False) -> Path:
        """Write the state after update `step`; with `best`, under that name as well."""
        tensors: dict[str, Tensor] = {}
        entries = {name: encode(value, name, tensors) for name, value in state.items()}
        metadata = {"format": "pt", "laworder": json.dumps(entries, allow_nan=False), "step": str(step)}
        target = self.path(step)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(target, tensors, metadata, best=best)
        except OSError as error:
            raise CheckpointError(self._refusal(step, error)) from error
        for old in self.steps()[: -self.keep]:
            if old != step:
                self.path(old).unlink(missing_ok=True)
        return target

    def _write(self, target: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], *, best: bool) -> None:
        partial = partial_name(target)
        try:
            with self.open_file(partial) as file:
                write_tensors(file, tensors, metadata)
                os.fsync(file.fileno())
            if best:
                # First: a state that says "the best was step k" must never stand beside an older best file.
                self._also(partial, self.best_path)
            partial.replace(target)
            fsync_folder(self.folder)
        finally:
            partial.unlink(missing_ok=True)

    def _also(self, written: Path, target: Path) -> None:
        second = partial_name(target)
        try:
            try:
                os.link(written, second)
            except OSError:  # a file system without hard links
                shutil.copyfile(written, second)
                with second.open("rb+") as file:
                    os.fsync(file.fileno())
            second.replace(target)
            fsync_folder(self.folder)
        finally:
            second.unlink(missing_ok=True)

    def _refusal(self, step: int, error: OSError) -> str:
        steps = [s for s in self.steps() if s != step]
        last = f"the last good one is {self.path(steps[-1])}" if steps else "there is no earlier one"
        return (
            f"the checkpoint of step {step} could not be written to {self.folder}: {error.strerror}; {last}; "
            "make room, then run the same command again"
        )

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; None where there is none at all. Damaged ones are named in the log."""
        rejected: list[str] = []
        for step in reversed(self.steps()):
            try:
                return load_checkpoint(self.path(step))
            except CheckpointError as error:
                _LOG.warning("%s: rejected; trying the one before", error)
                rejected.append(self.path(step).name)
        if rejected:
            names = ", ".join(rejected)
            raise CheckpointError(
                f"every checkpoint in {self.folder} is damaged ({names}); to begin anew, remove that folder"
            )
        return None

    def set_aside(self, after: int) -> None:
        """Rename checkpoints beyond step `after`, which were rejected, so that `keep` no longer counts them."""
        for step in self.steps():
            if step > after:
                self.path(step).replace(self.path(step).with_suffix(".rejected"))

    def best(self, *, only: Collection[str] | None = None) -> Checkpoint:
        """The checkpoint that was best by the run's own measure."""
        return load_checkpoint(self.best_path, only=only)

    def sweep(self) -> None:
        """Remove what a killed save left behind."""
        for leftover in sweep(self.folder):
            _LOG.info("removed %s, left by a save that was cut off", leftover.name)
