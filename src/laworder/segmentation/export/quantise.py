"""Eight-bit weights and activations, with ranges measured on calibration images (static quantisation, QDQ form).

Only convolutions are quantised, their weights channel by channel. Attention, gates and everything pointwise stay in
float32: they hold next to no weights, and a softmax does not survive eight bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def write_int8(onnx_file: Path, path: Path, images: UInt8[Tensor, "n c s s"]) -> None:
    """An ONNX file whose convolutions run in eight bits, from one in float32."""
    imported("onnxruntime")
    onnx = imported("onnx")
    quantization = imported("onnxruntime.quantization")
    shape_inference = imported("onnxruntime.quantization.shape_inference")
    facts = {entry.key: entry.value for entry in onnx.load(onnx_file).metadata_props}
    with tempfile.TemporaryDirectory() as folder, quiet():
        prepared = Path(folder) / "prepared.onnx"
        shape_inference.quant_pre_process(onnx_file, prepared, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared,
            path,
            _Reader(images),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
    model = onnx.load(path)
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
