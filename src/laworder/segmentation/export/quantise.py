"""Eight-bit weights and activations, with ranges measured on calibration images (static quantisation, QDQ form).

Only convolutions are quantised, their weights channel by channel. Attention and everything pointwise stay in float32:
they hold next to no weights, and a softmax does not survive eight bits. Some convolutions are harder to round than
others, so there are `LEVELS`: from all of them to only those that bear it best.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from laworder.segmentation.export.runtimes import imported
from laworder.segmentation.export.trace import quiet
from laworder.segmentation.export.writers import IMAGE


class _Reader:
    """Hands ONNX Runtime one image at a time."""

    def __init__(self, images: UInt8[Tensor, "n c s s"]) -> None:
        self.images: Iterator[Tensor] = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self.images, None)
        return None if image is None else {IMAGE: np.ascontiguousarray(image.permute(1, 2, 0).numpy())[None]}


@dataclass(frozen=True)
class Level:
    """Which convolutions stay in float32: in words, and by name from the graph's convolutions in order."""

    left: str
    choose: Callable[[Sequence[Any]], list[str]]


def _grouped(convolutions: Sequence[Any]) -> list[str]:
    """Depthwise ones: each channel has a range of its own, and all share one scale."""
    return [c.name for c in convolutions if any(a.name == "group" and a.i > 1 for a in c.attribute)]


def _ends(convolutions: Sequence[Any]) -> list[str]:
    """The nearest to the image and to the result, where nothing averages the error away."""
    names = [c.name for c in convolutions]
    return [*names[:ENDS], *names[-ENDS:]]


ENDS = 6
"""Convolutions at either end; a multi-kernel block holds six at most."""
LEVELS = (
    Level("none", lambda _: []),
    Level("the depthwise ones", _grouped),
    Level("the depthwise ones and the first and last six", lambda all_: [*_grouped(all_), *_ends(all_)]),
)


def write_int8(onnx_file: Path, path: Path, images: UInt8[Tensor, "n c s s"], level: Level = LEVELS[0]) -> None:
    """An ONNX file whose convolutions run in eight bits, from one in float32."""
    imported("onnxruntime")
    onnx = imported("onnx")
    quantization = imported("onnxruntime.quantization")
    shape_inference = imported("onnxruntime.quantization.shape_inference")
    facts = {entry.key: entry.value for entry in onnx.load(onnx_file).metadata_props}
    with tempfile.TemporaryDirectory() as folder, quiet():
        prepared = Path(folder) / "prepared.onnx"
        shape_inference.quant_pre_process(onnx_file, prepared, skip_symbolic_shape=True)
        convolutions = [node for node in onnx.load(prepared).graph.node if node.op_type == "Conv"]
        quantization.quantize_static(
            prepared,
            path,
            _Reader(images),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            nodes_to_exclude=level.choose(convolutions),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
    model = onnx.load(path)
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
