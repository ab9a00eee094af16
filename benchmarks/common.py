"""What every benchmark writes beside its numbers, so that they can be believed and repeated."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import laworder
from laworder.runs.manifest import git_state, versions

RESULTS = Path(__file__).resolve().parent / "results"


def manifest(
    args: argparse.Namespace,
    *,
    device: torch.device,
    seeds: Sequence[int],
    rooms: Sequence[str],
    data: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Command, settings, seeds, data hashes, versions, device, and one hash over the measured rooms' sources."""
    cuda = device.type == "cuda"
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "config": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k != "out"},
        "seeds": list(seeds),
        "data": dict(data or {}),
        "device": torch.cuda.get_device_name(device) if cuda else (cpu_name() or platform.machine()),
        "cpu": {"name": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {
            **versions(),
            "laworder": laworder.__version__,
            "torch": torch.__version__,
            "cuda": torch.version.cuda if cuda else None,
            "cudnn": torch.backends.cudnn.version() if cuda else None,
        },
        "settings": dict(settings or {}),
        "git": git_state(),
        "code_sha256": code_hash(rooms),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def code_hash(rooms: Sequence[str]) -> str:
    """One hash over the sources that were measured."""
    package = Path(laworder.__file__).parent
    files = sorted(f for room in rooms for f in (package / room).rglob("*.py"))
    assert files, f"no sources in {rooms}"
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()
