"""The one place that writes to the terminal."""

from __future__ import annotations

import sys


def say(text: str = "") -> None:
    """A line of result, on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line about the work, on stderr, so that piped results stay clean."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
