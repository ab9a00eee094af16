"""A run is a folder that can be killed at any instant and resumed with the same command to the same bits (on a CPU).

manifest.json      what ran: config, seeds, data hashes, versions, commit, device, command, times, outcome
metrics.jsonl      one line a logged step, each once
timing.jsonl       when each of these steps was made, and how long it took
checkpoints/       step-00000120.safetensors …, best.safetensors
lock               who is in
"""

from laworder.runs.batches import Batches
from laworder.runs.checkpoint import Checkpoint, CheckpointError, Checkpoints, load_checkpoint
from laworder.runs.files import WriteError, atomic_write, sha256_file
from laworder.runs.lock import Lock, LockedError
from laworder.runs.loop import NonFiniteError, train_loop
from laworder.runs.manifest import Manifest, read_manifest
from laworder.runs.metrics_log import MetricsLog, read_metrics
from laworder.runs.plan import Plan, Result
from laworder.runs.progress import Progress
from laworder.runs.randomness import batch_indices, generator, permutation, seed_all
from laworder.runs.reproduce import Reproduction, reproduction
from laworder.runs.run import Run
from laworder.runs.schedules import constant, cosine
from laworder.runs.signals import Stopped
from laworder.runs.task import Task

__all__ = [
    "Batches",
    "Checkpoint",
    "CheckpointError",
    "Checkpoints",
    "Lock",
    "LockedError",
    "Manifest",
    "MetricsLog",
    "NonFiniteError",
    "Plan",
    "Progress",
    "Reproduction",
    "Result",
    "Run",
    "Stopped",
    "Task",
    "WriteError",
    "atomic_write",
    "batch_indices",
    "constant",
    "cosine",
    "generator",
    "load_checkpoint",
    "permutation",
    "read_manifest",
    "read_metrics",
    "reproduction",
    "seed_all",
    "sha256_file",
    "train_loop",
]
