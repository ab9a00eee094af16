"""On a Ray cluster: tasks go where there is room; what dies with its machine is done again elsewhere."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laworder.errors import MissingExtraError
from laworder.runs import LockedError
from laworder.scale.local import Sign
from laworder.scale.tasks import Board, Outcome, Task, Tell, Work

_LOG = logging.getLogger(__name__)
RETRIES = 3
PAUSE = 0.5
STORE = 100 * 2**20


def run_on_ray(
    tasks: Iterable[Task], work: Work, tell: Tell, *, address: str | None, patience: float, retries: int = RETRIES
) -> dict[str, Outcome]:
    """Do all tasks on the cluster at `address` (`ray://host:10001`, `host:6379`); None starts one here for the time.

    A task is submitted when its needs are done, asks for one core and its share of a GPU (where the cluster has any),
    and is submitted again, up to `retries` times, when its worker or machine is lost. The folder of the study must be
    on a file system that all machines share.
    """
    ray = library()
    with connected(ray, address):
        remote = ray.remote(max_retries=0, num_cpus=1)(attempt)
        with_gpus = ray.cluster_resources().get("GPU", 0) > 0
        board = Board(tasks)
        running: dict[Any, Task] = {}
        lost: dict[str, int] = {}
        while board.waiting:
            started = {task.key for task in running.values()}
            for task in board.ready():
                if task.key not in started:
                    call = remote.options(num_gpus=task.gpus if with_gpus else 0)
                    running[call.remote(work, dict(task.order), lost_hosts(ray), patience)] = task
            done, _ = ray.wait(list(running), num_returns=1)
            _collect(ray, done[0], running.pop(done[0]), board, lost, retries, tell)
        return board.outcomes


def _collect(ray: Any, result: Any, task: Task, board: Board, lost: dict[str, int], retries: int, tell: Tell) -> None:
    """Settle one task, or leave it waiting where its machine was lost and it has another try."""
    try:
        message = ray.get(result)
    except ray.exceptions.RayTaskError as error:
        message = f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError as error:  # the worker or its machine is gone
        lost[task.key] = lost.get(task.key, 0) + 1
        reason = type(error).__name__
        if lost[task.key] <= retries:
            tries = (lost[task.key], retries)
            _LOG.warning("%s: lost with its worker (%s); trying again, %d of %d", task.key, reason, *tries)
            return
        message = f"lost with its worker {lost[task.key]} times, last by {reason}"
    board.settle(Outcome(task.key, "failed" if message else "done", message), tell)


def attempt(work: Work, order: dict[str, Any], gone: list[str], patience: float) -> str:
    """On a worker: do the order; wait for a predecessor that is still dying, and pass by the lock of a lost machine."""
    sign: Sign | None = None
    while True:
        try:
            return work(order)
        except LockedError:
            sign = sign or Sign(order)
            if sign.silent() > patience:
                raise
            for lock in Path(order["folder"]).rglob("lock"):
                release_of_lost_host(lock, gone)
            time.sleep(PAUSE)


def release_of_lost_host(lock: Path, gone: list[str]) -> bool:
    """Remove a lock whose holder ran on a machine that the cluster has lost; True where it was removed."""
    try:
        host = json.loads(lock.read_bytes())["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return False  # gone, or free
    if host not in gone:
        return False
    lock.unlink(missing_ok=True)
    return True


def lost_hosts(ray: Any) -> list[str]:
    """Machines that were in the cluster and are no more, as they call themselves."""
    nodes = ray.nodes()
    alive = {node["NodeManagerHostname"] for node in nodes if node["Alive"]}
    return sorted({node["NodeManagerHostname"] for node in nodes} - alive)


def library() -> Any:
    """The module ray."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "scale") from error
    return ray


@contextmanager
def connected(ray: Any, address: str | None) -> Any:
    """Ray, connected; what was connected before is used and left as it is."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Without a dashboard, a cluster of our own listens on nothing that is of no use here.
    # Results are one line of text each: the store of objects, by default a third of the memory, can be small.
    own = {"include_dashboard": False, "object_store_memory": STORE}
    ray.init(**quiet, **(own if address is None else {"address": address}))
    try:
        yield
    finally:
        ray.shutdown()
