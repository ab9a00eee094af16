"""SIGTERM and Ctrl-C as requests: finish the step, save, leave with 128 + signal. A second one kills at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_MESSAGE = b"\nstopping: this step is finished and saved first; the same signal again kills at once\n"


class Stopped(SystemExit):
    """The run was asked to stop and has saved. A SystemExit: the process ends with 143 (SIGTERM) or 130 (SIGINT)."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(128 + number)

    def __str__(self) -> str:
        return f"stopped by {self.signal.name}"


class StopRequest:
    """A context in which the first SIGTERM or SIGINT only sets `requested`."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Python delivers signals to the main thread only; elsewhere (a notebook's worker) they keep their meaning.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.requested = signal.Signals(number)
        os.write(2, _MESSAGE)  # not logging: a handler may interrupt a logger that holds its lock

    def check(self) -> None:
        """Raise Stopped where a stop was asked for. For loops that have nothing to save."""
        if self.requested is not None:
            raise Stopped(self.requested)
