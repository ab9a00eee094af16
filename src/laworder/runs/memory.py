"""Freed memory stays with the process, where the C library allows it.

A network on the CPU takes and frees the same large tensors at every step. glibc hands each of them back to the system,
which has to clear every page anew: ORDER's training then spends a third of its time there (benchmarks/cpu_memory.py).
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of settings in glibc's malloc.h."""


def keep_freed_memory() -> None:
    """From now on this process reuses what it frees, and keeps its peak. Without effect where there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl and macOS have no such function, Windows no such library
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
