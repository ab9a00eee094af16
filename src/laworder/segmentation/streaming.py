"""Decode, infer and write at the same time: readers and writers on threads around one thread that runs the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from laworder.errors import UserError

Job = TypeVar("Job")
Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = TypeVar("Outcome")


def stream(
    jobs: Iterable[Job],
    *,
    read: Callable[[Job], Item],
    infer: Callable[[Sequence[Item]], Sequence[Result]],
    write: Callable[[Item, Result], Outcome],
    refuse: Callable[[Job, UserError], Outcome],
    batch: int,
    workers: int,
) -> Iterator[Outcome]:
    """One outcome a job, in no promised order: write(item, result), or refuse(job, error) where reading it failed.

    `read` and `write` run on `workers` threads each, `infer` in the caller's. At most a few batches are held, however
    many jobs there are. An error in `infer` or `write` ends everything.
    """
    ahead = 2 * batch + workers
    waiting = iter(jobs)
    with ThreadPoolExecutor(workers) as readers, ThreadPoolExecutor(workers) as writers:
        coming: deque[tuple[Job, Future[Item]]] = deque()
        going: deque[Future[Outcome]] = deque()
        while True:
            coming.extend((job, readers.submit(read, job)) for job in islice(waiting, ahead - len(coming)))
            if not coming:
                break
            items: list[Item] = []
            for _ in range(min(batch, len(coming))):
                job, future = coming.popleft()
                try:
                    items.append(future.result())
                except UserError as error:
                    yield refuse(job, error)
            if items:
                results = infer(items)
                going.extend(writers.submit(write, i, r) for i, r in zip(items, results, strict=True))
            while len(going) > ahead:
                yield going.popleft().result()
        while going:
            yield going.popleft().result()
