"""Exported files as functions: uint8 images in, (mask, probability) out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8

from laworder.errors import MissingExtraError, UserError
from laworder.segmentation.export.trace import quiet


class Output(NamedTuple):
    """Class index and class probabilities of every pixel."""

    mask: UInt8[np.ndarray, "b h w"]
    probability: Float[np.ndarray, "b k h w"]


Runtime = Callable[[UInt8[np.ndarray, "b h w c"]], Output]


def of_onnx(path: Path, *, threads: int | None = None) -> Runtime:
    """ONNX Runtime on the CPU, in the file's own precision."""
    session = onnx_session(path, threads=threads)
    name = session.get_inputs()[0].name
    return lambda image: Output(*session.run(None, {name: image}))


def onnx_session(path: Path, *, threads: int | None = None) -> Any:
    """An ONNX Runtime session on the CPU; all cores by default."""
    onnxruntime = imported("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    state = imported("onnxruntime.capi.onnxruntime_pybind11_state")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.NoSuchFile, state.NotImplemented) as error:
        raise UserError(f"{path}: ONNX Runtime cannot read it: {str(error).splitlines()[0]}") from error


def of_openvino(
    path: Path,
    *,
    precision: Literal["f32", "bf16"] = "f32",
    threads: int | None = None,
    shape: tuple[int, ...] | None = None,
) -> Runtime:
    """OpenVINO on the CPU. Its own default is bf16 on processors that have it; here float32 unless asked.

    shape: of the images, where it is always the same: the graph is then compiled for it, which is faster
    """
    openvino = imported("openvino")
    core = openvino.Core()
    model = core.read_model(path)
    if shape is not None:
        model.reshape(list(shape))
    settings = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run(image: UInt8[np.ndarray, "b h w c"]) -> Output:
        request.infer({0: image})
        return Output(*(request.get_output_tensor(i).data.copy() for i in range(2)))

    return run


def of_torch(path: Path) -> Runtime:
    """A torch.export archive, run by PyTorch."""
    with quiet():
        module = torch.export.load(path).module()

    @torch.inference_mode()
    def run(image: UInt8[np.ndarray, "b h w c"]) -> Output:
        mask, probability = module(torch.from_numpy(image))
        return Output(mask.numpy(), probability.numpy())

    return run


def imported(name: str) -> Any:
    """An optional library, or the line that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, "export") from error
