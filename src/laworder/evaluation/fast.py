"""The same network, arranged so that the machine is fast with it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def runner(network: nn.Module, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function that runs `network` on batches."""
    network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(x: Tensor) -> Tensor:
        return network(x.contiguous(memory_format=torch.channels_last))

    return run
