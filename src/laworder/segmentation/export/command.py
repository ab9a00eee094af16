"""`laworder seg export`: a segmenter as one file, uint8 images in and masks out, compared before it is kept."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from laworder.config import group, option, to_dict
from laworder.console import say
from laworder.data.opening import Phantom
from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.runs import Manifest, WriteError, sha256_file
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.export.agreement import agreements, insist
from laworder.segmentation.export.calibration import DiceCheck, Sets, calibrated, calibration_sets
from laworder.segmentation.export.deployed import Deployed
from laworder.segmentation.export.facts import NOTE, facts_of, name_of
from laworder.segmentation.export.lean import lean
from laworder.segmentation.export.runtimes import Runtime, of_onnx, of_openvino, of_torch
from laworder.segmentation.export.trace import traced
from laworder.segmentation.export.writers import write_onnx, write_openvino, write_torch
from laworder.segmentation.loading import load_segmenter

ENDINGS = {"onnx": ".onnx", "openvino": ".xml", "torch": ".pt2", "int8": ".int8.onnx"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Write a segmenter as one file for other runtimes. It takes uint8 images (batch, height, width, channels; RGB) of
    any size and gives a mask and probabilities; all processing is inside. The file is run and compared with the model
    before it is kept; a JSON file beside it says how they agree."""

    model: str = option(meaning="run folder, folder of save_pretrained, shipped model or Hub id", positional=True)
    to: Literal["onnx", "openvino", "torch", "int8"] = option(
        "onnx",
        "onnx: ONNX; openvino: OpenVINO's IR; torch: torch.export's archive; int8: ONNX with 8-bit convolutions, "
        "calibrated on data",
    )
    out: Path = option(Path("exported"), "folder for the file and its JSON")
    resize: bool = option(
        False,
        "shrink images to the training size inside the file and stretch the probabilities back, as `seg predict` does; "
        "off: images are taken at their own size",
    )
    data: str | None = option(
        None, "int8: folder of images and masks, or the word phantom; none: the data of the run that MODEL is"
    )
    masks: Path | None = option(None, "int8: folder of the masks, where they lie apart from the images")
    calibration: int = option(64, "int8: images whose ranges are measured; Dice is compared on others", minimum=1)
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    check = "compare Dice with the model's" if config.to == "int8" else "compare it with the model at three sizes"
    return [
        f"load {config.model}, and work batch norms, shuffles and projections into its weights",
        f"write {config.to} to a temporary name in {config.out}, run it, {check}",
        "keep the file and its JSON where they agree; leave nothing where not",
    ]


def run(config: Config) -> int:
    """Export, compare, keep."""
    model = pytorch_model(config.model)
    sets = calibration_sets(config, model) if config.to == "int8" else None
    side = model.preprocessing.size if config.resize else None
    facts = facts_of(model, resized=config.resize)
    try:
        config.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=config.out) as folder:
            path = Path(folder) / (name_of(model) + ENDINGS[config.to])
            deployed = Deployed(lean(model), side=side)
            if sets is None:
                found = agreements(written(config.to, deployed, path, facts), model, side=side)
                insist(found)
                report: dict[str, Any] = {"agreement": [asdict(a) for a in found]}
                lines = [a.words() for a in found]
            else:
                check = written_int8(deployed, path, facts, model, sets)
                report, lines = {"dice": asdict(check)}, [check.words()]
            kept = _keep(config, path, facts, report)
    except OSError as error:
        raise WriteError(f"cannot write to {config.out}: {error.strerror}") from error
    for line in lines:
        say(line)
    say(f"exported: {kept}")
    return 0


def pytorch_model(source: str) -> Segmenter:
    """The model that `source` names; UserError where no file could be made of it."""
    if source.endswith(".onnx"):
        raise UserError(f"model: {source} is an exported file already; give the run or the model that it came from")
    model = load_segmenter(source, device=torch.device("cpu"))
    refuse(model)
    return model


def refuse(model: Segmenter) -> None:
    """UserError for what no exported file could do."""
    if model.spatial_dims != 2:
        raise UserError(
            f"model: {name_of(model)} has 3 spatial dimensions, and exported files take images (2 dimensions)"
        )


def written(to: str, deployed: Deployed, path: Path, facts: dict[str, str]) -> Runtime:
    """The float32 file at `path`, as a function."""
    program = traced(deployed)
    if to == "torch":
        write_torch(program, path, facts)
        return of_torch(path)
    if to == "onnx":
        write_onnx(program, path, facts)
        return of_onnx(path)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        write_onnx(program, plain, facts)
        write_openvino(plain, path, facts)
    return of_openvino(path)


def written_int8(deployed: Deployed, path: Path, facts: dict[str, str], model: Segmenter, sets: Sets) -> DiceCheck:
    """The 8-bit file at `path`, and how its Dice compares."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        write_onnx(traced(deployed), plain, facts)
        return calibrated(plain, path, model, sets, side=deployed.side)


def _keep(config: Config, path: Path, facts: dict[str, str], report: dict[str, Any]) -> Path:
    """Move what was written to its place, the JSON last; a file whose JSON is there was compared."""
    manifest = Manifest(
        kind="seg export",
        command=command_line(),
        config=jsonable(to_dict(config)),
        seeds={},
        data={},
        device=describe_device("cpu"),
        outcome="done",
    )
    files = {f.name: sha256_file(f) for f in sorted(path.parent.iterdir())}
    record = {"note": NOTE, "format": 1, "facts": facts, "files": files, **report, "manifest": asdict(manifest)}
    about = path.with_name(path.name + ".json")
    about.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for file in (*(path.parent / name for name in files), about):
        file.replace(config.out / file.name)
    return config.out / path.name
