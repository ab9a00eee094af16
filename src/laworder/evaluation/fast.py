"""The same network, arranged so that the machine is fast with it. Numbers stay those of float32."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

Runner = Callable[[Tensor], Tensor]


def runner(network: nn.Module, device: torch.device) -> Runner:
    """A function that runs `network` on batches."""
    network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(x: Tensor) -> Tensor:
        return network(x.contiguous(memory_format=torch.channels_last))

    return run


def convolution_runner(network: nn.Module, device: torch.device, *, side: int) -> Runner:
    """The same for a plain convolution network on RGB pictures of one size.

    On a CPU it runs in OpenVINO where that is installed: float32 there too, and several times as fast as in torch
    (benchmarks/fid_speed.py).
    """
    if device.type != "cpu" or importlib.util.find_spec("openvino") is None:
        return runner(network, device)
    return compiled_openvino(network, side=side)


def compiled_openvino(network: nn.Module, *, side: int, precision: str = "f32") -> Runner:
    """`network` in OpenVINO, on as many threads as torch has. Left to itself it computes in bf16 where it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports and of torch's tracing
        import openvino

        example = torch.zeros(1, 3, side, side)
        converted = openvino.convert_model(network, example_input=example, input=[-1, 3, side, side])
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.Core().compile_model(converted, "CPU", settings)

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(compiled(x.contiguous().numpy())[0].copy())

    return run
