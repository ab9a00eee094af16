"""What a job's folder says: who it is, whether it is done, and what came out.

jobs/<label>/<digest>/job.json   identity, outcome, times, device, versions, and the hash of every result
jobs/<label>/<digest>/run/       what the command wrote
jobs/<label>/<digest>/log.txt    what it said
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from laworder.errors import UserError
from laworder.paper.identity import Resolved, Resolver
from laworder.paper.jobs import OUT, Job
from laworder.runs import atomic_write, read_metrics, sha256_file
from laworder.runs.manifest import describe_device, git_state, now, versions
from laworder.segmentation.train import pick_device

RECORD = "job.json"
RESULTS = (".json", ".csv", ".jsonl")
State = Literal["done", "begun", "failed", "stale", "missing"]


@dataclass(frozen=True)
class Status:
    """state, and why it is not done."""

    state: State
    why: str = ""


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record in a job's folder; None where there is none, or a damaged one."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def status(one: Resolved) -> Status:
    """Whether a job is done as it stands today: same settings, data, code and needs."""
    record = read_record(one.folder)
    if record is not None and record.get("digest") == one.identity.digest:
        outcome = record.get("outcome", "")
        if outcome == "done":
            gone = [name for name in record["results"] if not (one.out / name).is_file()]
            return Status("missing", f"{gone[0]} was removed") if gone else Status("done")
        if outcome == "running" or outcome.startswith("stopped"):
            return Status("begun", progress(one.out) or "begun, not finished")
        return Status("failed", outcome.removeprefix("failed: "))
    older = [r for r in versions_of(one) if r.get("outcome") == "done"]
    if older:
        last = max(older, key=lambda r: r.get("ended") or "")
        return Status("stale", "; ".join(one.identity.changes(last["identity"])) or "its record was changed")
    return Status("missing", "never run")


def done(jobs: Sequence[Job], resolver: Resolver) -> list[Resolved]:
    """Those of the jobs that are done."""
    return [one for one in map(resolver.resolve, jobs) if status(one).state == "done"]


def versions_of(one: Resolved) -> list[dict[str, Any]]:
    """Records of other versions of the same job: other settings, data or code."""
    folders = [path for path in one.folder.parent.glob("*") if path.is_dir() and path != one.folder]
    records = [read_record(folder) for folder in sorted(folders)]
    return [record for record in records if record is not None and record.get("label") == one.job.label]


def progress(out: Path) -> str:
    """How far a training has come, in words; empty where nothing tells."""
    try:
        lines = read_metrics(out / "metrics.jsonl")
    except UserError:
        return ""
    return f"step {lines[-1]['step']} is done" if lines else ""


def begin(order: Mapping[str, Any]) -> dict[str, Any]:
    """Write down that a job has begun."""
    record = {
        "format": 1,
        "label": order["label"],
        "command": order["command"],
        "digest": order["digest"],
        "identity": order["identity"],
        "work": order["work"],
        "outcome": "running",
        "started": now(),
        "ended": None,
        "seconds": None,
        "device": describe_device(pick_device(order["device"])),
        "versions": versions(),
        "git": git_state(),
        "results": {},
    }
    write(Path(order["folder"]), record)
    return record


def finish(order: Mapping[str, Any], record: dict[str, Any], outcome: str, seconds: float) -> None:
    """Write down how it ended, with the hash of every result."""
    folder = Path(order["folder"])
    results = sorted(p for p in (folder / OUT).glob("*") if p.suffix in RESULTS) if outcome == "done" else []
    record |= {
        "outcome": outcome,
        "ended": now(),
        "seconds": round(max(trained(folder / OUT), seconds), 3),
        "results": {path.name: sha256_file(path) for path in results},
    }
    write(folder, record)


def trained(out: Path) -> float:
    """Seconds of all steps of a training, however often it was stopped; 0 where it left no times."""
    try:
        return sum(float(line["seconds"]) for line in read_metrics(out / "timing.jsonl"))
    except UserError:
        return 0.0


def write(folder: Path, record: Mapping[str, Any]) -> None:
    atomic_write(folder / RECORD, json.dumps(record, indent=1) + "\n")


def order_of(one: Resolved, device: str) -> dict[str, Any]:
    """What a worker has to know to do a job, as plain JSON values."""
    return {
        "label": one.job.label,
        "command": one.job.command,
        "module": one.module,
        "values": dict(one.values),
        "folder": str(one.folder),
        "digest": one.identity.digest,
        "identity": asdict(one.identity),
        "work": one.job.work,
        "device": device,
    }


def result(one: Resolved, name: str) -> Any:
    """A result file of a done job, refused where it is not what the job wrote."""
    path = one.out / name
    record = read_record(one.folder) or {}
    if name not in record.get("results", {}):
        raise UserError(f"{path} is no result of {one.job.label}")
    if sha256_file(path) != record["results"][name]:
        raise UserError(f"{path} was changed after {one.job.label} wrote it; remove {one.folder} and run it again")
    return json.loads(path.read_text(encoding="utf-8"))
