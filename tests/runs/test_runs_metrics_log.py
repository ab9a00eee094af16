"""metrics.jsonl: floats to the bit, each step once, torn lines dropped."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laworder.errors import UserError
from laworder.runs import MetricsLog, WriteError, read_metrics


@given(st.floats())
def test_every_float_comes_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    path = tmp_path_factory.mktemp("m") / "metrics.jsonl"
    log = MetricsLog(path)
    log.write(1, {"loss": value})
    log.close()
    found = read_metrics(path)[0]["loss"]
    assert (math.isnan(found) and math.isnan(value)) or found.hex() == value.hex()


def test_truncation_drops_later_steps_and_a_torn_line_and_can_go_on(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    for step in (2, 4, 6, 8):
        log.write(step, {"loss": 0.1 * step})
    log.sync()
    with log.path.open("a") as file:
        file.write('{"step": 10, "lo')
    assert [r["step"] for r in read_metrics(log.path)] == [2, 4, 6, 8]
    log.truncate(8)
    assert [r["step"] for r in read_metrics(log.path)] == [2, 4, 6, 8]
    assert log.path.read_text().endswith("}\n")
    log.truncate(5)
    log.write(6, {"loss": 1.0})
    log.close()
    assert [(r["step"], r["loss"]) for r in read_metrics(log.path)] == [(2, 0.2), (4, 0.4), (6, 1.0)]
    log.truncate(0)
    assert read_metrics(log.path) == []


def test_truncating_nothing_is_fine(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    log.truncate(3)
    log.sync()
    log.close()
    assert read_metrics(log.path) == []


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("nonsense\n")
    with pytest.raises(UserError, match="m holds a line that is no record"):
        read_metrics(tmp_path / "m")
    with pytest.raises(UserError, match="does not exist"):
        read_metrics(tmp_path / "none")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "m").symlink_to("/dev/full")
    with pytest.raises(WriteError, match="m: No space left on device"):
        MetricsLog(tmp_path / "m").write(1, {"loss": 1.0})
