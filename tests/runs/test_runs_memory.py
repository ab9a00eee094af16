"""Freed memory is reused, not handed back to the system and cleared anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import resource, sys
import torch
if sys.argv[1] == "keep":
    from laworder.runs.memory import keep_freed_memory
    keep_freed_memory()
def step():
    return sum(float((torch.zeros(16, 2**20) + k)[0, 0]) for k in range(4))
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", CHILD, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc hands memory back")
def test_what_was_freed_is_not_cleared_again() -> None:
    # 20 times two tensors of 64 MiB, in pages of 4 KiB.
    assert faults("plain") > 400_000
    assert faults("keep") < 100_000  # the heap may still grow once or twice
