"""What pydicom remarks on files is kept from screens and logs: it quotes them, and with them, perhaps, the patient."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from laworder.data.sources.images import hushed

_HERE = threading.local()


@contextmanager
def quiet() -> Iterator[None]:
    """Neither warnings nor log records of pydicom's from this thread."""
    _silencer()
    before = getattr(_HERE, "depth", 0)
    _HERE.depth = before + 1
    try:
        with hushed():
            yield
    finally:
        _HERE.depth = before


@lru_cache(maxsize=1)
def _silencer() -> None:
    """A filter that drops records only inside `quiet`: other users of pydicom in this process keep their log."""
    logging.getLogger("pydicom").addFilter(lambda _: not getattr(_HERE, "depth", 0))
