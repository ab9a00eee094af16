"""A real Ray cluster of two nodes on this machine, one of which is killed in the middle of a study."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_work

from laworder.runs import LockedError
from laworder.runs.lock import Lock
from laworder.scale import Outcome, Task, fan_out
from laworder.scale.on_ray import attempt, connected, library, release_of_lost_host

STORE = 80 * 1024 * 1024  # the least that Ray takes


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head with one core and a second node with one, as two machines would be; workers find the toy work."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    ray = library()
    from ray.cluster_utils import Cluster

    one = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=one)
    try:
        made.second = made.add_node(num_cpus=1, object_store_memory=STORE)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_node_dies_in_the_middle_of_a_study(cluster: Any, tmp_path: Path) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    fan_out(toy_work.study(alone), toy_work.work, lambda _: None)
    told: list[str] = []

    def tell(outcome: Outcome) -> None:
        told.append(outcome.key)
        if len(told) == 4:
            cluster.remove_node(cluster.second, allow_graceful=False)

    tasks = toy_work.study(spread, seconds=0.4)
    outcomes = fan_out(tasks, toy_work.work, tell, on=cluster.address, patience=60)
    assert {key: outcome.state for key, outcome in outcomes.items()} == {f"run {n}": "done" for n in range(12)}
    assert sorted(told) == sorted(outcomes)  # none told twice
    assert toy_work.values(spread) == toy_work.values(alone)
    assert len(toy_work.values(spread)) == 12
    assert all(len(path.read_text().splitlines()) == 1 for path in spread.glob("*/done"))
    workers = {pid for path in spread.glob("*/begun") for pid in path.read_text().split()}
    assert len(workers) > 1, "both nodes took part"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_ray_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """`--on ray`: failures are told, what needs them is skipped, what kills its workers is given up after its tries."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    tasks = toy_work.study(tmp_path, 4)
    tasks[0] = Task("run 0", {**tasks[0].order, "wrong": True})
    tasks[3] = Task("run 3", {**tasks[3].order, "dies": True}, tasks[3].needs)
    with caplog.at_level(logging.WARNING):
        outcomes = fan_out(tasks, toy_work.work, lambda _: None, on="ray", patience=20)
    assert [outcomes[f"run {n}"].state for n in range(4)] == ["failed", "done", "skipped", "failed"]
    assert outcomes["run 0"].message == "told to fail"
    assert outcomes["run 3"].message.startswith("lost with its worker 4 times")
    assert caplog.text.count("trying again") == 3
    assert not library().is_initialized()


def test_a_lock_of_a_lost_machine_is_passed_by(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = {"pid": 1, "host": "gone-host", "began": "then"}
    lock.write_text(json.dumps(holder))
    assert not release_of_lost_host(lock, ["another"])
    with pytest.raises(LockedError, match="gone-host"), Lock(tmp_path):
        pass
    order = {"folder": str(tmp_path), "number": 5}
    assert attempt(toy_work.work, order, ["gone-host"], 5.0) == ""
    assert (tmp_path / "value").read_text() == "25"
    lock.write_text("torn")
    assert not release_of_lost_host(lock, ["gone-host", socket.gethostname()])


def test_an_attempt_waits_for_a_predecessor_that_is_still_dying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laworder.scale.on_ray.PAUSE", 0.02)
    calls: list[float] = []

    def work(order: Any) -> str:  # noqa: ARG001
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise LockedError("in use")
        return ""

    assert attempt(work, {"folder": str(tmp_path)}, [], 5.0) == ""
    assert len(calls) == 3

    def never(order: Any) -> str:  # noqa: ARG001
        raise LockedError("in use")

    with pytest.raises(LockedError):
        attempt(never, {"folder": str(tmp_path)}, [], 0.1)


def test_what_was_connected_before_stays_connected() -> None:
    class Ray:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def is_initialized(self) -> bool:
            return bool(self.calls)

        def init(self, **_: Any) -> None:
            self.calls.append("init")

        def shutdown(self) -> None:
            self.calls.append("shutdown")

    ray = Ray()
    with connected(ray, "head:6379"):
        with connected(ray, None):
            pass
        assert ray.calls == ["init"]
    assert ray.calls == ["init", "shutdown"]
