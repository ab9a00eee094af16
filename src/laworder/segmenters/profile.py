"""What a segmenter costs: parameters, operations by two conventions, memory and time.

`conv_flops` is the paper's figure: 2·numel(out)·(C_in/groups)·taps summed over the convolutions. It counts a
transposed convolution by its output too (which over-counts a 2×2 up-convolution four times), leaves out the 1-D
convolutions of EGE-UNet (with them its 0.617 G would be 0.618) and every matrix product, so that ORDER's attention is
free by it. It counts the pass that was published, with the deep-supervision maps (`deep_logits`).

`flops` is what `forward` computes here: transposed convolutions by their input, linear layers, and both products of
every attention. ORDER's exact attention computes S once per direction, four products where the formula has three:
with form="reference" the count is the formula's (0.540 G for order_01 at 256²), by default it is 0.682 G.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from laworder.order.base import Segmenter
from laworder.segmenters.registry import card, create, list_models

_CONVOLUTIONS = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def count_parameters(model: nn.Module) -> int:
    """Numbers that training moves."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def conv_flops(model: Segmenter, size: int | Sequence[int] = 256) -> int:
    """The paper's figure for one image: 2·numel(out)·(C_in/groups)·taps over the convolutions of `deep_logits`."""
    total = 0

    def add(module: nn.Module, _inputs: Any, out: Tensor) -> None:
        nonlocal total
        assert isinstance(module, _CONVOLUTIONS)
        total += 2 * out.numel() * (module.in_channels // module.groups) * math.prod(module.kernel_size)

    dry = _dry(model)
    for module in dry.modules():
        if isinstance(module, _CONVOLUTIONS):
            module.register_forward_hook(add)
    with torch.no_grad():
        dry.deep_logits(_image(model, size, device="meta"))
    return total


def flops(model: Segmenter, size: int | Sequence[int] = 256) -> int:
    """Multiplications and additions of one image's forward pass in convolutions, linear layers and attentions.

    Counted below autograd on tensors without data, so a 1025² image costs nothing to ask about.
    """
    with torch.no_grad(), FlopCounter() as counter:
        _dry(model)(_image(model, size, device="meta"))
    return counter.total


class FlopCounter(TorchDispatchMode):
    """Adds up `total` over what runs inside the `with` block; a product and its sum count as two.

    An attention counts both of its matrix products, 2·B·H·N·M·(width of q + width of v), whichever kernel runs it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket).removeprefix("aten.")
        count = _attention if name.startswith("_scaled_dot_product") else _COUNTS.get(name)
        if count is not None and not name.endswith("_backward"):
            self.total += count(args, out)
        return out


def _convolution(args: tuple[Any, ...], out: Tensor) -> int:
    x, weight, transposed = args[0], args[1], args[6]
    # weight is (out, in/groups, taps…), or (in, out/groups, taps…) where transposed.
    return 2 * (x if transposed else out).numel() * math.prod(weight.shape[1:])


def _matmul(left: int) -> Callable[[tuple[Any, ...], Tensor], int]:
    return lambda args, out: 2 * out.numel() * args[left].shape[-1]


def _attention(args: tuple[Any, ...], _out: Any) -> int:
    q, k, v = args[:3]
    return 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


_COUNTS: dict[str, Callable[[tuple[Any, ...], Tensor], int]] = {
    "convolution": _convolution,
    "mm": _matmul(0),
    "bmm": _matmul(0),
    "addmm": _matmul(1),
    "baddbmm": _matmul(1),
}


def peak_bytes(run: Callable[[], object]) -> int:
    """The most memory that a CPU run holds at once beyond what it started with, from the allocator's own trace."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as trace:
        run()
    assert trace.profiler is not None
    assert trace.profiler.kineto_results is not None
    moves = [e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for move in sorted(moves, key=lambda e: e.start_ns()):
        held += move.nbytes()  # pyright: ignore[reportAttributeAccessIssue] torch's stub forgets it
        peak = max(peak, held)
    return peak


def latency_ms(model: Segmenter, size: int | Sequence[int] = 256, *, batch: int = 1, repeats: int = 5) -> float:
    """Median milliseconds of a CPU forward pass in eval mode, after one to warm up."""
    x = _image(model, size, batch=batch)
    ready = copy.deepcopy(model).eval()
    times: list[float] = []
    with torch.inference_mode():
        for _ in range(repeats + 1):
            start = perf_counter()
            ready(x)
            times.append(1e3 * (perf_counter() - start))
    return statistics.median(times[1:])


def cost(name: str, size: int | Sequence[int] = 256, **settings: Any) -> dict[str, Any]:
    """What a registered model costs for one image: parameters and operations, exact and the same on any machine."""
    model = create(name, **settings)
    return {
        "name": name,
        "params": count_parameters(model),
        "conv_flops": conv_flops(model, size),
        "flops": flops(model, size),
    }


def model_table(pattern: str = "*", *, size: int = 256, time: bool = True) -> list[dict[str, Any]]:
    """One row per registered model, smallest first: its cost, CPU milliseconds (None without `time`) and its card."""
    rows: list[dict[str, Any]] = []
    for name in list_models(pattern):
        about = card(name)
        rows.append(
            cost(name, size)
            | {
                "cpu_ms": latency_ms(create(name), size, repeats=3) if time else None,
                "licence": about.licence,
                "source": about.paper,
                "differs": about.differs,
                "summary": about.summary,
            }
        )
    return sorted(rows, key=lambda row: (row["params"], row["name"]))


def _dry(model: Segmenter) -> Segmenter:
    """A copy in eval mode whose tensors have shapes and no data."""
    return copy.deepcopy(model).eval().to("meta")


def _image(model: Segmenter, size: int | Sequence[int], *, batch: int = 1, device: str = "cpu") -> Tensor:
    sides = [size] * model.spatial_dims if isinstance(size, int) else list(size)
    return torch.zeros(batch, model.in_channels, *sides, device=device)
