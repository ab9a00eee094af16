"""`laworder models`: the table of what there is."""

from __future__ import annotations

import pytest

from laworder.cli import main


def test_the_table_has_counts_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "order_0*", "--no-time", "--sources"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("order_01 "))
    assert row.split() == ["order_01", "42,265", "0.1119", "G", "0.6823", "G"]
    assert "differs" in out
    assert "unet" not in out.split("\n\n")[0]


def test_time_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "order_backbone"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith("CPU ms")
    assert 0 < float(row.split()[-1]) < 10_000


def test_unknown_patterns_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "resnet*"]) == 2
    assert "no model matches 'resnet*'; known: egeunet" in capsys.readouterr().err
