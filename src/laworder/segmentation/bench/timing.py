"""Backends side by side: taken in turns, so that what else the machine does hits all of them alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from laworder.runs import Progress
from laworder.segmentation.bench.backends import Backend
from laworder.segmentation.export.agreement import Agreement, compared, expected
from laworder.segmentation.export.runtimes import Runtime

ROUNDS = 5
SETTLE = 3
"""Calls at the start of each turn that do not count: the threads of the backend before may still spin."""


@dataclass(frozen=True)
class Timing:
    """One backend. Times are of a whole batch; memory is what loading and running it added, at its highest.

    fastest_ms: of all calls; on a machine that does other work too, the nearest to what it would be alone
    """

    name: str
    precision: str
    median_ms: float
    quartiles_ms: tuple[float, float]
    fastest_ms: float
    images_per_second: float
    calls: int
    peak_mb: float | None
    largest_difference: float
    mask_agreement: float


def measure(candidates: Sequence[Backend], image: UInt8[np.ndarray, "b h w c"], *, seconds: float) -> list[Timing]:
    """Median and quartiles of every backend, about `seconds` each, and how far each is from its PyTorch model."""
    loaded = [_loaded(candidate, image) for candidate in candidates]
    times: list[list[float]] = [[] for _ in loaded]
    with Progress(total=ROUNDS * len(loaded), desc="measuring", unit="turn") as bar:
        for _ in range(ROUNDS):
            for (runtime, _, _), taken in zip(loaded, times, strict=True):
                taken.extend(_turn(runtime, image, seconds / ROUNDS))
                bar.update()
    return [
        _timing(candidate, taken, len(image), peak, agreement)
        for candidate, taken, (_, agreement, peak) in zip(candidates, times, loaded, strict=True)
    ]


def _loaded(candidate: Backend, image: UInt8[np.ndarray, "b h w c"]) -> tuple[Runtime, Agreement, float | None]:
    truth = expected(candidate.model, image)
    before = reset_peak()
    runtime = candidate.open()
    agreement = compared(runtime(image), truth)
    for _ in range(SETTLE):
        runtime(image)
    return runtime, agreement, None if before is None else (peak_memory() - before) / 1e6


def _turn(runtime: Runtime, image: UInt8[np.ndarray, "b h w c"], seconds: float) -> list[float]:
    """Milliseconds of each call."""
    for _ in range(SETTLE):
        runtime(image)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        start = time.perf_counter()
        runtime(image)
        taken.append(1e3 * (time.perf_counter() - start))
    return taken


def _timing(candidate: Backend, taken: list[float], batch: int, peak: float | None, agreement: Agreement) -> Timing:
    low, middle, high = statistics.quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
    return Timing(
        name=candidate.name,
        precision=candidate.precision,
        median_ms=middle,
        quartiles_ms=(low, high),
        fastest_ms=min(taken),
        images_per_second=1e3 * batch / middle,
        calls=len(taken),
        peak_mb=peak,
        largest_difference=agreement.largest_difference,
        mask_agreement=agreement.mask_agreement,
    )


def reset_peak() -> int | None:
    """Start a new peak; bytes resident now. None where the system does not say (it does on Linux)."""
    if sys.platform != "linux":
        return None
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def peak_memory() -> int:
    """Most bytes resident since `reset_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
