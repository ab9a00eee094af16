"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
import torch

# One thread a worker: the suite runs under pytest-xdist, and small tensors gain nothing from more.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

# The same examples on every run, and no deadline: CI's two cores are shared by the whole suite.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.load_profile("suite")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The research data beside the checkout; tests that need it are skipped where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the research data (../shared/data) is not beside this checkout")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
