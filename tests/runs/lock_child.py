"""Processes that go in and out of a lock, for tests."""

from __future__ import annotations

import random
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from laworder.runs import Lock, LockedError


def hold(folder: str, pipe: Connection) -> None:
    """Wait for the word, then try to get in; say how it went and stay."""
    pipe.send("ready")
    pipe.recv()
    try:
        with Lock(folder):
            pipe.send("in")
            time.sleep(60)
    except LockedError as error:
        pipe.send(str(error))
        time.sleep(60)


def rounds(folder: str, wanted: int) -> None:
    """Exit 0 after being inside `wanted` times; 1 where somebody else was inside, too; 2 where it takes for ever."""
    entered, until = 0, time.monotonic() + 60
    while entered < wanted and time.monotonic() < until:
        try:
            with Lock(folder):
                inside = Path(folder) / "inside"
                try:
                    inside.touch(exist_ok=False)
                except FileExistsError:
                    sys.exit(1)
                time.sleep(0.001 * random.random())
                inside.unlink()
                entered += 1
        except LockedError:
            pass
        time.sleep(0.001 * random.random())
    sys.exit(0 if entered == wanted else 2)
