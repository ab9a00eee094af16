"""From what a user types to a segmenter that is ready to judge: a run, a saved, exported or shipped one, a Hub id."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from laworder.config import build, flatten
from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.order.hub import CONFIG, Preprocessing
from laworder.runs import Checkpoints, read_manifest
from laworder.segmentation.export.judge import ExportedSegmenter
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.task import MEAN, STD
from laworder.segmenters import create
from laworder.segmenters.hub import from_pretrained

MANIFEST = "manifest.json"
KIND = "seg train"


def load_segmenter(source: str, *, device: torch.device) -> Segmenter:
    """The segmenter that `source` names, in eval mode on `device`, with its preprocessing.

    source: folder of a `seg train` run (its best weights), folder that `save_pretrained` wrote, ONNX file of `seg
        export`, name of a model that ships with the package, or id of a repository on the Hub, OWNER/NAME
    """
    folder = Path(source).expanduser()
    if folder.suffix == ".onnx" and folder.is_file():
        return ExportedSegmenter(folder).eval()
    if folder.exists():
        if (folder / MANIFEST).is_file():
            return _of_run(folder).to(device).eval()
        return from_pretrained(folder).to(device).eval()
    if source in shipped():
        with resources.as_file(resources.files("laworder").joinpath("assets").joinpath(source)) as asset:
            return from_pretrained(asset).to(device).eval()
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(
            f"{source!r} is no folder and no shipped model{_ships(source)}; give the folder of a run or of "
            "save_pretrained, an ONNX file of `seg export`, or OWNER/NAME on the Hugging Face Hub"
        )
    try:
        return from_pretrained(source).to(device).eval()
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{source!r} is no folder here, and the Hub did not give it: {reason}") from error


def _ships(source: str) -> str:
    known = shipped()
    return nearest(source, known) if known else " (this version ships none)"


def shipped() -> list[str]:
    """Names of the models inside the package."""
    assets = resources.files("laworder").joinpath("assets")
    found = assets.iterdir() if assets.is_dir() else iter(())
    return sorted(entry.name for entry in found if entry.joinpath(CONFIG).is_file())


def run_settings(folder: Path) -> TrainConfig:
    """The settings of a `seg train` run."""
    manifest = read_manifest(folder)
    if manifest.kind != KIND:
        raise UserError(f"{folder} is a run of `{manifest.kind}`; its folder holds no segmenter: give one of `{KIND}`")
    return build(TrainConfig, flatten(manifest.config))


def _of_run(folder: Path) -> Segmenter:
    config = run_settings(folder)
    checkpoints = Checkpoints(folder / "checkpoints")
    if not checkpoints.best_path.is_file():
        raise UserError(f"{folder} has no best checkpoint yet: let the run validate at least once")
    modules = checkpoints.best(only=("modules",)).state["modules"]
    model = create(config.model, in_channels=config.channels, classes=config.classes)
    model.load_state_dict(_weights(modules))
    mean, std = (MEAN, STD) if config.channels == 3 else ((sum(MEAN) / 3,), (sum(STD) / 3,))
    model.preprocessing = Preprocessing(size=config.size, mean=mean, std=std)
    return model


def _weights(modules: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The averaged weights where the run kept an average, as its validation did, else the trained ones."""
    if "ema" not in modules:
        return modules["model"]
    head = "module."
    return {name[len(head) :]: value for name, value in modules["ema"].items() if name.startswith(head)}
