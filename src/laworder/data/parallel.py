"""The same work on every item, over the machine's cores, with a progress bar."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from tqdm import tqdm


def over_cores(
    work: Callable[[int], None], count: int, *, workers: int | None = None, label: str | None = None
) -> None:
    """work(0) … work(count − 1) on threads (decoders release the GIL); the first error ends it and is raised.

    With a label there is a progress bar on a terminal, and nothing elsewhere.
    """
    workers = workers or min(os.cpu_count() or 1, 16)
    # A few futures for each thread, not one for each item: sets may hold tens of thousands.
    chunk = max(1, min(32, count // (workers * 4)))
    stop = threading.Event()
    with tqdm(total=count, desc=label, unit="pair", disable=True if label is None else None, leave=False) as bar:

        def run(start: int) -> None:
            for i in range(start, min(start + chunk, count)):
                if stop.is_set():
                    return
                work(i)
                bar.update()

        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(run, start) for start in range(0, count, chunk)]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # After an error, and after Ctrl-C: nothing more is begun.
                stop.set()
            for future in done:
                future.result()
