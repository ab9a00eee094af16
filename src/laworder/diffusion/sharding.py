"""Networks whose weights lie in shards, one on each process (FSDP: Rajbhandari et al. 2020, Zhao et al. 2023).

Of every parameter, its gradient, its average and what the optimiser remembers of it, one of N processes holds 1/N. A
block's weights are gathered when it computes, forward and backward, and dropped behind it; its gradient is averaged and
cut in the same breath. Losses are those of a training in which every process holds everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from laworder.diffusion.settings import TrainConfig
from laworder.errors import UserError
from laworder.runs.distributed import Place

UNITS = ("resnets", "attentions", "downsamplers", "upsamplers")
"""diffusers' names for the lists of layers that a block of a UNet or ControlNet consists of."""


def check_sharding(config: TrainConfig, place: Place) -> None:
    """Refuse what cannot be combined with shards, by name."""
    network = config.network
    if not network.shard:
        return
    if place.world == 1:
        raise UserError(
            "network.shard: there is one process, and nothing to share out; start several with `accelerate launch` or "
            "`torchrun`, or leave it out"
        )
    refused = {
        "network.lora": (bool(network.lora), "LoRA learns so few weights that shards save little"),
        "optimiser.name": (config.optimiser.name == "adamw8bit", "adamw8bit cannot update shards; use adamw"),
        "network.compile": (network.compile, "networks are compiled whole, and shards are gathered block by block"),
    }
    for name, (is_set, why) in refused.items():
        if is_set:
            raise UserError(f"{name}: not together with --network.shard: {why}")


def shard(networks: Iterable[nn.Module], device: torch.device, place: Place, *, precision: str) -> None:
    """Cut the networks' parameters in place, block by block, so that no device ever holds all of them.

    Their parameters are new objects afterwards, and each process holds one shard of each.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Gathered in bf16, or autocast would keep a bf16 copy of every gathered weight until the backward pass.
    low = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    how: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (place.world,)),
        "mp_policy": low if precision == "bf16" else MixedPrecisionPolicy(),
        # Also at the root, which torch would otherwise leave gathered behind a look, and then stale.
        "reshard_after_forward": True,
    }
    for network in networks:
        for name, part in list(network.named_modules()):
            if name.rpartition(".")[0].rpartition(".")[2] in UNITS:
                fully_shard(part, **how)
        fully_shard(network, **how)
