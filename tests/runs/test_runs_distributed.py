"""Two processes over gloo: one writes, both agree on the log, on stops and on where to resume."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from laworder.runs import Batches, Plan, Run, Task, batch_indices, read_manifest, read_metrics, sha256_file, train_loop

X = torch.linspace(-1, 1, 7)[:, None]
STEPS = 8


class Line(Task):
    def __init__(self, stop_at: int | None) -> None:
        net = nn.Linear(1, 1, bias=False)
        nn.init.constant_(net.weight, 2.0)
        self.net, self.stop_at = DistributedDataParallel(net), stop_at
        super().__init__(modules={"net": net}, optimizers={"o": torch.optim.Adam(net.parameters(), lr=0.1)})

    def micro_step(self, batch: Any, step: int, micro: int) -> tuple[Tensor, Mapping[str, Tensor | float]]:  # noqa: ARG002
        if step == self.stop_at and dist.get_rank() == 1:
            signal.raise_signal(signal.SIGTERM)
        return (self.net(batch[0]) ** 2 / 2).mean(), {}


def work(rank: int, port: int, folder: str, stop_at: int | None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    batches = Batches(dataset=TensorDataset(X), batch_size=2)
    try:
        with Run(folder, config={}, kind="t", seeds={"seed": 0}, rank=rank, world=2) as run:
            train_loop(run, Line(stop_at), batches, Plan(steps=STEPS, seed=0, save_every=3))
    finally:
        dist.destroy_process_group()


def both(folder: Path, stop_at: int | None = None) -> list[int | None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "laworder.runs"])
    ranks = [context.Process(target=work, args=(rank, port, str(folder), stop_at)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        process.kill()
    return [process.exitcode for process in ranks]


@pytest.mark.slow
def test_two_ranks_train_stop_together_and_resume(tmp_path: Path) -> None:
    assert both(tmp_path / "whole") == [0, 0]
    assert both(tmp_path / "cut", stop_at=5) == [143, 143], "rank 1 was asked, both leave"
    assert read_manifest(tmp_path / "cut").step == 5
    assert both(tmp_path / "cut") == [0, 0]
    for name in ("metrics.jsonl", f"checkpoints/step-{STEPS:08d}.safetensors"):
        assert sha256_file(tmp_path / "cut" / name) == sha256_file(tmp_path / "whole" / name)
    first = read_metrics(tmp_path / "whole" / "metrics.jsonl")[0]
    shown = [X[batch_indices(0, 0, batch_size=2, n=7, rank=rank, world=2)] for rank in range(2)]
    assert first["loss"] == pytest.approx(float((torch.cat(shown) ** 2 * 2).mean()), rel=1e-5)
