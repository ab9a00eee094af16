"""The launchers that start the processes of one training on this machine, as the guides name them."""

from __future__ import annotations

import socket
import sys


def port() -> str:
    """A free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def torchrun(processes: int = 2) -> list[str]:
    where = [f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", f"--master-port={port()}"]
    return [sys.executable, "-m", "torch.distributed.run", *where]


def accelerate() -> list[str]:
    """With --cpu it would start one process, and leave the others to MPI. What is started picks its own device."""
    processes = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--num_cpu_threads_per_process=1"]
    where = [f"--main_process_port={port()}", "--mixed_precision=no", "--dynamo_backend=no"]
    return [sys.executable, "-m", "accelerate.commands.launch", *processes, *where]
