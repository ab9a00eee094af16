"""metrics.jsonl: one line a logged step, each step once, whatever happened to the process in between."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from laworder.errors import UserError
from laworder.runs.files import WriteError

_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _encode(value: Any) -> Any:
    # JSON has no NaN. repr() of a float reads back to the same bits, which json.dumps relies on, too.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class Mirror(Protocol):
    """Something else that shows the metrics. What it holds is a function of the log, whatever happened in between."""

    def begin(self, lines: list[dict[str, Any]]) -> None:
        """Show these lines and no others: the log as it stands when a run begins or goes on."""
        ...

    def write(self, step: int, values: Mapping[str, float | int | str]) -> None:
        """Show one more line."""
        ...


class MetricsLog:
    """Lines `{"step": k, name: value, …}` with k rising. A line reaches the file whole: one write, appended.

    mirrors: told of every line after it is in the file
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mirrors: list[Mirror] = []
        self._file: int | None = None

    def write(self, step: int, values: Mapping[str, float | int | str]) -> None:
        """Append one line."""
        line = json.dumps({"step": step, **{k: _encode(v) for k, v in values.items()}}, allow_nan=False) + "\n"
        data = line.encode()
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise WriteError(f"cannot write {self.path}: {error.strerror}") from error
        for mirror in self.mirrors:
            mirror.write(step, values)

    def sync(self) -> None:
        """Put the lines on the disk. Called before a checkpoint is written, so that no checkpoint is ahead of them."""
        if self._file is None:
            return
        try:
            os.fsync(self._file)
        except OSError as error:
            raise WriteError(f"cannot write {self.path}: {error.strerror}") from error

    def truncate(self, step: int) -> None:
        """Drop the lines after `step`, and a torn last line: the steps they tell of will be run again.

        Makes the file where there is none.
        """
        self.close()
        self.path.touch()
        kept = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or _parse(line, self.path)["step"] > step:
                    break
                kept += len(line)
        if kept < self.path.stat().st_size:
            with self.path.open("r+b") as file:
                file.truncate(kept)
                os.fsync(file.fileno())
        for mirror in self.mirrors:
            mirror.begin(read_metrics(self.path))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        record = json.loads(line)
        return {**record, "step": int(record["step"])}
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} holds a line that is no record: {line[:60]!r}; repair or remove the file") from error


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """All complete lines; a torn last line (the process died while writing it) is left out."""
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; is this the folder of a run?") from error
    records = [_parse(line, path) for line in lines if line.endswith(b"\n")]
    return [{k: _ODD.get(v, v) if isinstance(v, str) else v for k, v in record.items()} for record in records]
