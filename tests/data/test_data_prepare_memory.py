"""A large dataset needs no more memory than a small one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from data_pictures import pictures

MEASURE = """
import resource, sys
from pathlib import Path
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.anyfolder import any_folder

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)

few, many, to = map(Path, sys.argv[1:])
prepare(any_folder(few), to / "few")
before = peak()
head = prepare(any_folder(many), to / "many")
print(head["counts"]["pairs"], len(PreparedSource(to / "many")), round(peak() - before))
"""


@pytest.mark.slow
def test_memory_stays_flat_over_50_000_pairs(tmp_path: Path) -> None:
    base = pictures(tmp_path / "few", 50)
    for kind in ("images", "masks"):
        (tmp_path / "many" / kind).mkdir(parents=True)
        for i in range(50_000):
            (tmp_path / "many" / kind / f"{i:05d}.png").hardlink_to(base / kind / f"p{i % 50}.png")
    words = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in ("few", "many", "to"))]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    pairs, read, growth = map(int, done.stdout.split())
    assert (pairs, read) == (50_000, 50_000)
    assert growth < 200, f"{growth} MiB"
