"""`laworder seg export`: what is kept agrees with the model at every size; what does not agree is not kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from awake import awake
from PIL import Image

from laworder.cli import main
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.runs import sha256_file
from laworder.segmentation.bench.command import fresh
from laworder.segmentation.export import calibration, command
from laworder.segmentation.export.agreement import agreements, compared, expected, insist, pictures
from laworder.segmentation.export.command import pytorch_model, refuse, written
from laworder.segmentation.export.deployed import Deployed
from laworder.segmentation.export.facts import facts_of
from laworder.segmentation.export.lean import lean
from laworder.segmentation.export.runtimes import of_onnx
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.predictor import Predictor
from laworder.segmenters import create, list_models

CPU = torch.device("cpu")
SMALL = ("order_backbone",)
"""Models whose export is tested in the quick suite."""
WIDER = ("egeunet_paper", "mkunet_s", "mkunet_m", "mkunet_b", "mkunet_l")
"""They have the layers of a model that is tested, at other widths."""


@pytest.fixture(scope="module")
def model() -> Segmenter:
    return awake("order_01")


@pytest.fixture(scope="module")
def folder(model: Segmenter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model, and its ONNX file in `exported`."""
    folder = tmp_path_factory.mktemp("export")
    model.save_pretrained(folder / "model")
    assert main(["seg", "export", str(folder / "model"), "--out", str(folder / "exported")]) == 0
    return folder


def test_onnx_of_any_size(folder: Path, model: Segmenter) -> None:
    runtime = of_onnx(folder / "exported" / "order_01.onnx", threads=1)
    for shape in ((1, 64, 64), (2, 131, 70), (3, 33, 200), (1, 256, 256)):
        image = pictures(*shape, 3)
        insist([compared(runtime(image), expected(model, image))])


def test_no_size_is_baked_in(folder: Path) -> None:
    file = onnx.load(folder / "exported" / "order_01.onnx")
    axes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in file.graph.output}
    assert axes == {"mask": ["batch", "height", "width"], "probability": ["batch", 1, "height", "width"]}
    numbers = {
        int(n)
        for tensor in [*file.graph.initializer, *(a.t for node in file.graph.node for a in node.attribute if a.t.dims)]
        if tensor.data_type == onnx.TensorProto.INT64
        for n in onnx.numpy_helper.to_array(tensor).flatten()
    }
    # The traced image was 97 × 150: padded 128 × 160, with 80 tokens on skip 0 and 320 on skip 1.
    assert not numbers & {97, 150, 160, 80, 320}
    assert b"site-packages" not in (folder / "exported" / "order_01.onnx").read_bytes()


def test_the_json_says_how_it_was_checked(folder: Path, model: Segmenter) -> None:
    out = folder / "exported"
    assert sorted(p.name for p in out.iterdir()) == ["order_01.onnx", "order_01.onnx.json"]
    record = json.loads((out / "order_01.onnx.json").read_text())
    assert record["files"] == {"order_01.onnx": sha256_file(out / "order_01.onnx")}
    assert len(record["agreement"]) == 3
    assert [(a["batch"], a["height"], a["width"]) for a in record["agreement"]] == [
        (1, 64, 64),
        (1, 69, 70),
        (3, 65, 64),
    ]
    assert all(a["largest_difference"] <= 1e-4 and a["mask_agreement"] >= 0.9999 for a in record["agreement"])
    assert record["facts"] == facts_of(model, resized=False)
    assert record["manifest"]["versions"]["onnxruntime"]
    assert "Not a medical device" in record["note"]


def test_an_exported_file_stands_in_for_its_model(folder: Path, model: Segmenter, tmp_path: Path) -> None:
    path = folder / "exported" / "order_01.onnx"
    judge = load_segmenter(str(path), device=CPU)
    with pytest.raises(UserError, match="is an exported file: copy it"):
        judge.save_pretrained(tmp_path / "again")
    images = torch.from_numpy(pictures(2, 64, 64, 3)).permute(0, 3, 1, 2)
    assert (Predictor(judge, CPU)(images) - Predictor(model, CPU)(images)).abs().max() < 1e-5
    logits = judge(judge.preprocessing.normalise(images / 255))
    assert (logits - model(model.preprocessing.normalise(images / 255))).abs().max() < 1e-3
    Image.fromarray(pictures(1, 90, 120, 3)[0]).save(tmp_path / "a.png")
    masks = []
    for name in (path, folder / "model"):
        assert main(["seg", "predict", str(name), str(tmp_path / "a.png"), "--out", str(tmp_path / name.name)]) == 0
        masks.append(np.asarray(Image.open(tmp_path / name.name / "a.png")))
    assert (masks[0] == masks[1]).mean() > 0.9999


def test_files_that_are_no_export_of_ours_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match=r"broken\.onnx: ONNX Runtime cannot read it"):
        load_segmenter(str(tmp_path / "broken.onnx"), device=CPU)
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([], "g", [value], [value])
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=opset), tmp_path / "other.onnx")
    with pytest.raises(UserError, match="was not written by this version's `laworder seg export`"):
        load_segmenter(str(tmp_path / "other.onnx"), device=CPU)


@pytest.mark.slow
def test_what_disagrees_leaves_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(model: Segmenter) -> Segmenter:
        result = lean(model)
        result.head.bias += 0.01  # type: ignore[union-attr]
        return result

    monkeypatch.setattr(command, "lean", off)
    assert main(["seg", "export", str(folder / "model"), "--out", str(tmp_path / "out")]) == 2
    assert "disagrees with the model" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("to", "files"), [("openvino", {"order_01.xml", "order_01.bin"}), ("torch", {"order_01.pt2"})])
def test_other_formats(folder: Path, tmp_path: Path, to: str, files: set[str]) -> None:
    assert main(["seg", "export", str(folder / "model"), "--to", to, "--out", str(tmp_path)]) == 0
    about = tmp_path / f"order_01{command.ENDINGS[to]}.json"
    assert {p.name for p in tmp_path.iterdir()} == files | {about.name}
    assert set(json.loads(about.read_text())["files"]) == files


@pytest.mark.slow
def test_resizing_inside(folder: Path, model: Segmenter, tmp_path: Path) -> None:
    assert main(["seg", "export", str(folder / "model"), "--resize", "--out", str(tmp_path)]) == 0
    runtime = of_onnx(tmp_path / "order_01.onnx", threads=1)
    for shape in ((1, 300, 211), (2, 40, 64)):
        image = pictures(*shape, 3)
        insist([compared(runtime(image), expected(model, image, side=64))])


def int8(folder: Path, out: Path, *more: str) -> int:
    words = ["seg", "export", str(folder / "model"), "--to", "int8", "--out", str(out), "--data", "phantom"]
    return main([*words, "--phantom.count", "12", "--calibration", "8", *more])


@pytest.mark.slow
def test_eight_bits(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        calibration, "LARGEST_DROP", 0.5
    )  # random weights survive eight bits less well than trained ones
    assert int8(folder, tmp_path) == 0
    assert "Dice on 4 validation images" in capsys.readouterr().out
    record = json.loads((tmp_path / "order_01.int8.onnx.json").read_text())
    assert (record["dice"]["images"], record["dice"]["calibration_images"]) == (4, 8)
    assert 0 < record["dice"]["int8"] < 1
    kinds = {node.op_type for node in onnx.load(tmp_path / "order_01.int8.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    assert load_segmenter(str(tmp_path / "order_01.int8.onnx"), device=CPU).preprocessing.size == 64
    monkeypatch.setattr(calibration, "LARGEST_DROP", -1.0)
    assert int8(folder, tmp_path / "worse") == 2
    assert "Dice drops by more than" in capsys.readouterr().err
    assert list((tmp_path / "worse").iterdir()) == []


def test_eight_bits_need_images(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["seg", "export", str(folder / "model"), "--to", "int8", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "is no run that knows its own; give --data" in capsys.readouterr().err
    assert int8(folder, tmp_path / "out", "--calibration", "12") == 2
    assert "leave none to compare Dice on" in capsys.readouterr().err


def test_what_no_file_can_do_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="order_01 has 3 spatial dimensions"):
        refuse(create("order_01", spatial_dims=3))
    with pytest.raises(UserError, match="is an exported file already"):
        pytorch_model("model.onnx")


def every_model() -> list[object]:
    names = [name for name in list_models() if name not in WIDER]
    return [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", every_model())
def test_every_registered_architecture_exports(name: str, tmp_path: Path) -> None:
    model = fresh(name) if name == "pranet" else awake(name)  # whose residual sums would grow without bound
    # Of random weights' pixels some lie on the threshold: at 64², one that tips over is 2 in 10,000, and 1 may.
    model.preprocessing = replace(model.preprocessing, size=128 if name in ("pranet", "order_12") else 64)
    path = tmp_path / "model.onnx"
    runtime = written("onnx", Deployed(lean(model)), path, facts_of(model, resized=False))
    found = agreements(runtime, model, side=None)
    insist(found)
    assert len(found) == 3
