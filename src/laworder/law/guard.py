"""The fence between training and sampling.

LAW is a change of the training loss. Sampling must cost exactly what it costs without LAW ("Inference cost", section
3.1.2 of the paper), so the sampler declares itself with `sampling()`, and everything in this room refuses to run in it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from laworder.errors import UserError


class _Depth(threading.local):
    """How many `sampling()` blocks this thread is inside. Another thread may train meanwhile.

    A thread-local rather than a context variable, because `torch.compile` can trace (and guard on) only the former.
    """

    def __init__(self) -> None:
        self.value = 0


_depth = _Depth()


@contextmanager
def sampling() -> Generator[None, None, None]:
    """While this block runs (in this thread), every objective and φ raise `UserError` when called.

    Under `torch.compile(fullgraph=True)` the refusal surfaces as dynamo's own error that quotes ours.
    """
    _depth.value += 1
    try:
        yield
    finally:
        _depth.value -= 1


def refuse_in_sampling(name: str) -> None:
    """Raise if the current thread is inside `sampling()`."""
    if _depth.value:
        raise UserError(f"{name} was called while sampling: it shapes the training loss only; call the denoiser alone")
