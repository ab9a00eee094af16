"""Work that takes a moment, holds a lock as real work does, and writes down who did it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laworder.runs import Lock, atomic_write
from laworder.scale import Task


def work(order: Mapping[str, Any]) -> str:
    """Square a number, once: an order that is done is left as it is."""
    folder = Path(order["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    with Lock(folder):
        if (folder / "value").exists():
            return ""
        with (folder / "begun").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(order.get("seconds", 0.0))
        if order.get("wrong"):
            return "told to fail"
        if order.get("dies"):
            os._exit(3)
        base = sum(int((Path(need) / "value").read_text()) for need in order.get("from", ()))
        atomic_write(folder / "value", str(base + order["number"] ** 2))
        with (folder / "done").open("a") as file:
            file.write(f"{os.getpid()}\n")
    return ""


def study(root: Path, count: int = 12, seconds: float = 0.0, **more: Any) -> list[Task]:
    """`count` runs: the first two are what the others build upon."""
    tasks = []
    for number in range(count):
        needs = (f"run {number % 2}",) if number > 1 else ()
        order = {"folder": str(root / str(number)), "number": number, "seconds": seconds, **more}
        order["from"] = [str(root / str(number % 2))] if number > 1 else []
        tasks.append(Task(f"run {number}", order, needs, gpus=0.25))
    return tasks


def values(root: Path) -> dict[str, int]:
    """What the runs left behind."""
    return {path.parent.name: int(path.read_text()) for path in root.glob("*/value")}
