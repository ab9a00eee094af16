"""Every way of running a segmenter on this CPU, all doing the same work: uint8 images in, masks out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from laworder.order.base import Segmenter
from laworder.segmentation.export.agreement import pictures
from laworder.segmentation.export.deployed import Deployed
from laworder.segmentation.export.facts import facts_of
from laworder.segmentation.export.lean import lean
from laworder.segmentation.export.quantise import write_int8
from laworder.segmentation.export.runtimes import Output, Runtime, of_onnx, of_openvino, of_torch
from laworder.segmentation.export.trace import traced
from laworder.segmentation.export.writers import write_onnx, write_openvino, write_torch
from laworder.segmentation.predictor import classes_of

CALIBRATION = 16
"""Drawn images that the 8-bit file is calibrated on: enough to time it. `seg export` calibrates on the user's own."""


@dataclass(frozen=True)
class Backend:
    """A way to run a model. `precision` is that of its arithmetic; `open` loads it, ready to be called."""

    name: str
    precision: str
    model: Segmenter
    open: Callable[[], Runtime]


def backends(
    model: Segmenter, files: dict[str, Path], *, threads: int, shape: tuple[int, int, int], compiled: bool
) -> list[Backend]:
    """All of them, with the files of `exported`; `shape` is batch, height, width of the images to come."""
    fixed = (*shape, model.in_channels)
    openvino = partial(of_openvino, threads=threads)
    f32, int8 = "f32", "int8 convolutions, else f32"
    ways: list[tuple[str, str, Callable[[], Runtime]]] = [
        ("PyTorch eager", f32, lambda: eager(model)),
        ("PyTorch eager, channels_last", f32, lambda: eager(model, torch.channels_last)),
        ("PyTorch, torch.export", f32, lambda: of_torch(files["torch"])),
        ("ONNX Runtime", f32, lambda: of_onnx(files["onnx"], threads=threads)),
        ("ONNX Runtime, int8", int8, lambda: of_onnx(files["int8"], threads=threads)),
        ("OpenVINO, any size", f32, lambda: openvino(files["openvino"])),
        ("OpenVINO, fixed size", f32, lambda: openvino(files["openvino"], shape=fixed)),
        ("OpenVINO, fixed size, bf16", "bf16", lambda: openvino(files["openvino"], precision="bf16", shape=fixed)),
        ("OpenVINO, fixed size, int8", int8, lambda: openvino(files["int8"], shape=fixed)),
    ]
    if compiled:
        ways.insert(2, ("PyTorch, torch.compile", f32, lambda: eager(model, compiled=True)))
    return [Backend(name, precision, model, opened) for name, precision, opened in ways]


def names_in(folder: Path) -> dict[str, Path]:
    """Where `exported` puts each format."""
    files = {kind: folder / f"model{end}" for kind, end in (("onnx", ".onnx"), ("openvino", ".xml"), ("torch", ".pt2"))}
    return {**files, "int8": folder / "model.int8.onnx"}


def exported(model: Segmenter, folder: Path) -> dict[str, Path]:
    """The model in every format."""
    files = names_in(folder)
    program, facts = traced(Deployed(lean(model))), facts_of(model, resized=False)
    write_torch(program, files["torch"], facts)
    write_onnx(program, files["onnx"], facts)
    write_openvino(files["onnx"], files["openvino"], facts)
    side = model.preprocessing.size
    drawn = torch.from_numpy(pictures(CALIBRATION, side, side, model.in_channels)).permute(0, 3, 1, 2)
    write_int8(files["onnx"], files["int8"], drawn)
    return files


def eager(
    model: Segmenter, layout: torch.memory_format = torch.contiguous_format, *, compiled: bool = False
) -> Runtime:
    """The model as PyTorch runs it, with the processing around it that an exported file holds inside."""
    model = model.to(memory_format=layout)  # pyright: ignore[reportCallIssue] torch's stubs leave it out
    network = torch.compile(model.probabilities) if compiled else model.probabilities

    @torch.inference_mode()
    def run(image: UInt8[np.ndarray, "b h w c"]) -> Output:
        x = torch.from_numpy(image).permute(0, 3, 1, 2).float() / 255
        p = network(model.preprocessing.normalise(x).contiguous(memory_format=layout))
        return Output(classes_of(p, model.preprocessing.threshold).numpy(), p.numpy())

    return run
