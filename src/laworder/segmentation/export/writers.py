"""A traced model as a file: ONNX, OpenVINO's IR, or torch.export's own archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from laworder.segmentation.export.runtimes import imported
from laworder.segmentation.export.trace import quiet

IMAGE, MASK, PROBABILITY = "image", "mask", "probability"
"""Names of the file's input and outputs."""
OPSET = 18


def write_onnx(program: torch.export.ExportedProgram, path: Path, facts: Mapping[str, str]) -> None:
    """One ONNX file, weights inside; `facts` become its metadata."""
    onnx = imported("onnx")
    imported("onnxscript")
    axes = {0: "batch", 1: "height", 2: "width"}
    with quiet():
        converted = torch.onnx.export(
            program,
            program.example_inputs[0] if program.example_inputs else (),
            dynamo=True,
            opset_version=OPSET,
            input_names=[IMAGE],
            output_names=[MASK, PROBABILITY],
            dynamic_shapes=(axes,),
            verbose=False,
        )
    assert converted is not None
    model = converted.model_proto
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph):
        del part.metadata_props[:]  # the exporter's notes hold source lines and paths of the machine that exported
        part.doc_string = ""
    model.producer_name, model.doc_string = "laworder", facts.get("note", "")
    onnx.helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_openvino(onnx_file: Path, path: Path, facts: Mapping[str, str]) -> None:
    """OpenVINO's IR, `path` (.xml) and the weights beside it (.bin), in float32."""
    openvino = imported("openvino")
    model = openvino.Core().read_model(onnx_file)
    for key, value in facts.items():
        model.set_rt_info(value, ["laworder", key])
    openvino.save_model(model, path, compress_to_fp16=False)


def write_torch(program: torch.export.ExportedProgram, path: Path, facts: Mapping[str, str]) -> None:
    """torch.export's archive (.pt2), for PyTorch, AOTInductor and ExecuTorch."""
    with quiet():
        torch.export.save(program, path, extra_files=dict(facts))
