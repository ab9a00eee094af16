"""Tasks in their order, in this process; shares of a study; places."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import toy_work
from hypothesis import given
from hypothesis import strategies as st

from laworder.errors import UserError
from laworder.runs import Lock, LockedError
from laworder.scale import Outcome, Task, checked_place, fan_out, in_order, parse_shard, share_of
from laworder.scale.local import Sign


def ignore(_: Outcome) -> None:
    pass


def test_needs_come_first_and_each_key_once() -> None:
    a, b, c = Task("a", {}, ("c",)), Task("b", {}), Task("c", {}, ("b",))
    assert [task.key for task in in_order([a, b, c, a])] == ["b", "c", "a"]


def test_all_is_done_once(tmp_path: Path) -> None:
    told: list[str] = []
    outcomes = fan_out(toy_work.study(tmp_path), toy_work.work, lambda o: told.append(o.key))
    assert {o.state for o in outcomes.values()} == {"done"}
    assert sorted(told) == sorted(outcomes)
    assert toy_work.values(tmp_path) == {str(n): n**2 + (n > 1) * (n % 2) for n in range(12)}
    assert all(len((tmp_path / str(n) / "begun").read_text().splitlines()) == 1 for n in range(12))


def test_what_needs_a_failed_task_is_skipped(tmp_path: Path) -> None:
    tasks = toy_work.study(tmp_path, 6)
    tasks[0] = Task("run 0", {**tasks[0].order, "wrong": True})
    outcomes = fan_out(tasks, toy_work.work, ignore)
    assert [outcomes[f"run {n}"].state for n in range(6)] == ["failed", "done", "skipped", "done", "skipped", "done"]
    assert outcomes["run 0"].message == "told to fail"
    assert outcomes["run 2"].message == "needs run 0, which failed"


def test_what_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laworder.scale.local.PAUSE", 0.02)
    calls: list[str] = []

    def work(order: Any) -> str:
        calls.append(order["folder"])
        if len(calls) < 4:
            raise LockedError("in use")
        return ""

    outcomes = fan_out([Task("one", {"folder": str(tmp_path)})], work, ignore, patience=30)
    assert (len(calls), outcomes["one"].state) == (4, "done")


def test_what_gives_no_sign_of_life_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laworder.scale.local.PAUSE", 0.02)
    alive, dead = tmp_path / "alive", tmp_path / "dead"
    for folder in (alive, dead):
        folder.mkdir()
    stop = threading.Event()
    began = time.monotonic()

    def stir() -> None:
        while not stop.wait(0.05):
            (alive / "log").write_text(str(time.time()))

    def work(order: Any) -> str:
        if order["folder"] == str(alive) and time.monotonic() - began > 1.5:
            return ""
        raise LockedError(f"{order['folder']} is in use")

    helper = threading.Thread(target=stir)
    helper.start()
    try:
        tasks = [Task(folder.name, {"folder": str(folder)}) for folder in (alive, dead)]
        outcomes = fan_out(tasks, work, ignore, patience=0.6)
    finally:
        stop.set()
        helper.join()
    assert outcomes["alive"].state == "done"  # held for longer than patience, but it stirred
    assert outcomes["dead"] == Outcome("dead", "failed", f"{dead} is in use")


def test_a_file_that_changes_is_a_sign_of_life(tmp_path: Path) -> None:
    sign = Sign({"folder": str(tmp_path)})
    time.sleep(0.05)
    assert sign.silent() >= 0.05
    (tmp_path / "log").write_text("x")
    assert sign.silent() < 0.05


def test_a_lock_of_this_process_is_another_holder(tmp_path: Path) -> None:
    with Lock(tmp_path), pytest.raises(LockedError):
        toy_work.work({"folder": str(tmp_path), "number": 1})


@given(weights=st.dictionaries(st.text(max_size=5), st.floats(0.1, 100), max_size=40), count=st.integers(1, 9))
def test_shares_miss_nothing_and_never_overlap(weights: dict[str, float], count: int) -> None:
    shares = [share_of(weights, (index, count)) for index in range(count)]
    assert sorted(key for share in shares for key in share) == sorted(weights)
    if weights:
        loads = [sum(weights[key] for key in share) for share in shares]
        assert max(loads) - min(loads) <= max(weights.values()) + 1e-9


def test_shares_do_not_depend_on_the_order_of_the_tasks() -> None:
    weights = {f"run {n}": float(n % 4 + 1) for n in range(20)}
    turned = dict(reversed(weights.items()))
    assert set(share_of(weights, (1, 3))) == set(share_of(turned, (1, 3)))


def test_shards_and_places_as_typed() -> None:
    assert parse_shard("1/8") == (0, 8)
    assert parse_shard("8/8") == (7, 8)
    for wrong in ("0/8", "9/8", "1", "a/b", "1/0", "-1/2"):
        with pytest.raises(UserError, match="shard: write K/N"):
            parse_shard(wrong)
    for place in ("local", "ray", "ray://head:10001", "10.0.0.1:6379"):
        assert checked_place(place) == place
    with pytest.raises(UserError, match="is no place"):
        checked_place("moon")
