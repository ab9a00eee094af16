"""The one exception that users see: what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend. The message names the thing, says what is wrong, and what to do.

    The command line prints it as one line and exits with 2; every other exception is a defect of ours.
    """


class MissingExtraError(UserError):
    """A command needs an optional dependency that is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed: pip install 'laworder[{extra}]'")
        self.module, self.extra = module, extra


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: `; did you mean 'x'?`, or the known words where none is near."""
    words = [str(k) for k in known]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(words)}" if words else ""
