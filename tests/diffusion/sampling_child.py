"""`synth sample` in a process of its own, for tests that kill it: a fork of one that has loaded torch already."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch

from laworder.config import build
from laworder.diffusion.sampling.command import Config, run


def sample(values: dict[str, Any]) -> None:
    """The command with these settings."""
    torch.set_num_threads(1)
    run(build(Config, values))


def started(values: dict[str, Any]) -> Any:
    """A process that runs it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "diffusers.models.controlnets", "sampling_child"])
    child = context.Process(target=sample, args=(values,))
    child.start()
    return child
