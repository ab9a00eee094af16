"""What must not stand in src/: unsafe loading, prints, and configuration by environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).resolve().parents[1] / "src" / "laworder").rglob("*.py"))


@pytest.mark.parametrize(
    "forbidden",
    [
        r"weights_only\s*=\s*False",
        r"(?i)pickle",
        r"torch\.load\((?![^)]*weights_only=True)",
        r"^\s*print\(",
        r"os\.environ",
    ],
)
def test_no_source_holds(forbidden: str) -> None:
    assert SOURCES
    found = [path.name for path in SOURCES if re.search(forbidden, path.read_text(encoding="utf-8"), re.MULTILINE)]
    assert found == []
