"""One process of a training, started by a launcher: `sharding_child.py '{"out": …, "cut": 3}'`.

Writes OUT-bytes-RANK.json: what of its parameters, gradients, averages and optimiser state lies here. With `cut` the
training is cut off after that update, before it is saved, and then goes on, with the settings in `later`.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from training import settings

from laworder.diffusion.task import DiffuseTask
from laworder.diffusion.train import train
from laworder.runs.distributed import processes


def held_here(tensors: list[Any]) -> int:
    """Bytes in this process, of shards and of whole tensors."""
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors if isinstance(t, Tensor)]
    return sum(t.numel() * t.element_size() for t in local)


def counted(task: DiffuseTask) -> dict[str, int]:
    parameters = [*task.backbone.unet.parameters(), *task.backbone.controlnet.parameters()]
    parameters += [] if task.teacher is None else list(task.teacher.parameters())
    remembered = [value for state in task.optimizers["optimiser"].state.values() for value in state.values()]
    return {
        "parameters": held_here(parameters),
        "gradients": held_here([p.grad for p in task.learning]),
        "averages": held_here(task.ema.shadow_params),
        "optimiser": held_here(remembered),
    }


def main() -> None:
    told = json.loads(sys.argv[1])
    cuts = [told.pop("cut")] if "cut" in told else []
    changes = told.pop("later", {})
    torch.set_num_threads(1)
    after = DiffuseTask.after_step

    def watched(self: DiffuseTask, step: int) -> None:
        after(self, step)
        if step in cuts:
            cuts.remove(step)
            raise KeyboardInterrupt
        file = Path(f"{told['out']}-bytes-{self.place.rank}.json")
        file.write_text(json.dumps(counted(self)), encoding="utf-8")

    DiffuseTask.after_step = watched
    with processes():
        if cuts:
            with suppress(KeyboardInterrupt):
                train(settings(**told))
            assert not cuts, "it was cut"
        train(settings(**{**told, **changes}))


if __name__ == "__main__":
    main()
