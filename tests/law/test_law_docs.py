"""The guide's table is what the code computes today, and its pictures exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_guides_table_is_current() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "law_weights.py"))
    text = (ROOT / "docs" / "guide" / "law.md").read_text(encoding="utf-8")
    shown = text.split(script["BEGIN"], 1)[1].split(script["END"], 1)[0].strip()
    assert shown == script["table"]()


def test_the_guides_pictures_exist() -> None:
    folder = ROOT / "docs" / "guide"
    names = re.findall(r"\]\((img/law_\w+\.png)\)", (folder / "law.md").read_text(encoding="utf-8"))
    assert len(names) == 2
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)
