"""atomic_write, sha256_file, the sweep."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from laworder.runs import WriteError, atomic_write, sha256_file
from laworder.runs.files import partial_name, sweep


def test_writes_text_and_bytes_and_replaces(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", "δ")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "δ"
    atomic_write(str(tmp_path / "a"), b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_write(tmp_path / "a", "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"a: No space left on device; the file as it was before is untouched"):
        atomic_write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="nowhere"):
        atomic_write(tmp_path / "nowhere" / "a", "x")


def test_the_sweep_takes_partial_files_only(tmp_path: Path) -> None:
    partial_name(tmp_path / "a").write_text("half")
    (tmp_path / "a").write_text("whole")
    assert len(sweep(tmp_path)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_sha256_of_a_file_longer_than_a_piece(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(content)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()
