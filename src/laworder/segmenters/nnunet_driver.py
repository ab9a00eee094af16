"""The real nnU-Net v2, driven through its own commands in child processes.

    nnunet = NnUNet(work, python=None, device="cuda")
    with nnunet.dataset(("R", "G", "B")) as dataset:
        dataset.add("case_1", image, mask)
    nnunet.plan(splits)                  # fingerprint, plan, preprocess; then its splits_final.json is ours
    nnunet.train(fold=0)                 # goes on where a killed one stopped
    nnunet.predict(nnunet.model, (0,), images, out)

Below `work` lie nnU-Net's own three folders, raw, preprocessed and results. Its variables `nnUNet_raw` and so on exist
in the child alone: it sets them before it imports nnU-Net. Its checkpoints are read by nnU-Net, in the child.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from laworder.errors import MissingExtraError, UserError
from laworder.segmenters.nnunet import trainer_folder

DATASET, NUMBER, CONFIGURATION = "Dataset001_laworder", "1", "2d"
COLOUR, GRAY = ("R", "G", "B"), ("gray",)
ORDER_TRAINER = "nnUNetTrainerORDER"
_SHORT_NAME = re.compile(r"nnUNetTrainerShort(\d+)x(\d+)")
_CHILD = """
import json, sys
from os import environ
environ.update(json.loads(sys.argv.pop(1)))
sys.path[:0] = [environ["PYTHONPATH"]] if "PYTHONPATH" in environ else []
name = sys.argv.pop(1)
from importlib.metadata import entry_points
(found,) = [one for one in entry_points(group="console_scripts") if one.name == name]
if __name__ == "__main__":
    found.load()()
"""
_SHORT = '''"""nnU-Net's own trainer, for fewer epochs."""

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer


class {name}(nnUNetTrainer):
    def __init__(self, plans, configuration, fold, dataset_json, device=None):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs, self.num_iterations_per_epoch = {epochs}, {iterations}
        self.num_val_iterations_per_epoch = min(self.num_val_iterations_per_epoch, {iterations})
'''


def is_nnunet(folder: Path) -> bool:
    """Whether a folder holds a trained nnU-Net: plans.json, dataset.json and a fold with a final checkpoint."""
    whole = (folder / "plans.json").is_file() and (folder / "dataset.json").is_file()
    return whole and bool(trained_folds(folder))


def trained_folds(folder: Path) -> list[str]:
    """The folds of a trained nnU-Net that are finished."""
    return sorted(p.parent.name.removeprefix("fold_") for p in folder.glob("fold_*/checkpoint_final.pth"))


@dataclass(frozen=True)
class NnUNet:
    """One data set of nnU-Net, and all that is trained on it.

    work:       folder of nnU-Net's own folders
    python:     Python that has nnunetv2; None is this one
    epochs, iterations: nnU-Net's 1000 and 250; fewer make a short trainer of them
    trainer:    one of nnU-Net's, or nnUNetTrainerORDER
    """

    work: Path
    python: Path | None = None
    device: str = "cuda"
    epochs: int | None = None
    iterations: int = 250
    trainer: str = "nnUNetTrainer"
    workers: int = 2

    @property
    def raw(self) -> Path:
        return self.work / "raw" / DATASET

    @property
    def preprocessed(self) -> Path:
        return self.work / "preprocessed" / DATASET

    @property
    def trainer_name(self) -> str:
        return self.trainer if self.epochs is None else f"nnUNetTrainerShort{self.epochs}x{self.iterations}"

    @property
    def model(self) -> Path:
        """The folder of what was trained, as nnU-Net names it."""
        return self.work / "results" / DATASET / f"{self.trainer_name}__nnUNetPlans__{CONFIGURATION}"

    @contextmanager
    def dataset(self, channels: Sequence[str]) -> Iterator[DatasetWriter]:
        """Write the raw data set; its dataset.json comes last, so that one that has it is whole."""
        for part in ("imagesTr", "labelsTr"):
            (self.raw / part).mkdir(parents=True, exist_ok=True)
        writer = DatasetWriter(self.raw, len(channels))
        yield writer
        about = {
            "channel_names": {str(k): name for k, name in enumerate(channels)},
            "labels": {"background": 0, "lesion": 1},
            "numTraining": writer.count,
            "file_ending": ".png",
            "overwrite_image_reader_writer": "NaturalImage2DIO",
        }
        (self.raw / "dataset.json").write_text(json.dumps(about, indent=1))

    def plan(self, splits: Sequence[Mapping[str, Sequence[str]]]) -> None:
        """Fingerprint, plan and preprocess once, then put `splits` where nnU-Net looks for its folds."""
        done = self.preprocessed / "laworder-planned"
        if not done.is_file():
            few = str(self.workers)
            self.call("nnUNetv2_plan_and_preprocess", "-d", NUMBER, "-c", CONFIGURATION, "-np", few, "-npfp", few)
            done.write_text("")
        listed = [{part: list(names) for part, names in split.items()} for split in splits]
        (self.preprocessed / "splits_final.json").write_text(json.dumps(listed, indent=1))

    def train(self, fold: int) -> Path:
        """Train one fold, or go on with it; its folder, in which `validation` holds the masks of its held-out cases."""
        folder = self.model / f"fold_{fold}"
        if (folder / "checkpoint_final.pth").is_file() and (folder / "validation" / "summary.json").is_file():
            return folder
        again = ["--c"] if (folder / "checkpoint_latest.pth").is_file() else []
        self.call(
            "nnUNetv2_train", NUMBER, CONFIGURATION, str(fold), "-tr", self.trainer_name, "-device", self.device, *again
        )
        return folder

    def predict(self, model: Path, folds: Sequence[str], images: Path, out: Path) -> None:
        """Masks of the pictures in `images` (named NAME_0000.png), by a trained model's folder."""
        few = str(self.workers)
        self.call(
            "nnUNetv2_predict_from_modelfolder",
            *("-i", str(images), "-o", str(out), "-m", str(model), "-f", *folds),
            *("-device", self.device, "-npp", few, "-nps", few),
        )

    def call(self, command: str, *arguments: str) -> None:
        """Run one of nnU-Net's commands; UserError with its last words where it fails."""
        self._write_trainer()
        # What nnU-Net says is kept, for those who want to know why a training went as it did.
        log = self.work / "log" / f"{command}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        python = sys.executable if self.python is None else str(self.python)
        line = [python, "-c", _CHILD, json.dumps(self._variables()), command, *arguments]
        with log.open("a", encoding="utf-8") as file:
            done = subprocess.run(line, stdout=file, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise self._failure(command, log)

    def _failure(self, command: str, log: Path) -> UserError:
        said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        last = said[-1] if said else "nothing"
        if "not enough values to unpack" in last or "No module named 'nnunetv2'" in last:
            if self.python is None:
                return MissingExtraError("nnunetv2", "nnunet")
            return UserError(f"{self.python}: this Python has no nnunetv2; install it there, or give another")
        return UserError(f"{command} failed: {last}; all that it said is in {log}")

    def _variables(self) -> dict[str, str]:
        found = {f"nnUNet_{part}": str(self.work / part) for part in ("raw", "preprocessed", "results")}
        found["nnUNet_n_proc_DA"] = str(self.workers)
        if self._trainers is not None:
            found["nnUNet_extTrainer"] = str(self._trainers)
        if self.trainer == ORDER_TRAINER:
            found["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        # No compiling where a C++ toolchain may lack and runs may be short.
        if not self.device.startswith("cuda"):
            found["nnUNet_compile"] = "f"
        return found

    @property
    def _trainers(self) -> Path | None:
        """Where nnU-Net finds a trainer that is not its own."""
        if self.epochs is not None:
            return self.work / "trainers"
        return trainer_folder() if self.trainer == ORDER_TRAINER else None

    def _write_trainer(self) -> None:
        if self.epochs is None or self._trainers is None:
            return
        self._trainers.mkdir(parents=True, exist_ok=True)
        text = _SHORT.format(name=self.trainer_name, epochs=self.epochs, iterations=self.iterations)
        (self._trainers / f"{self.trainer_name}.py").write_text(text)


def predictor_of(model: Path, work: Path, *, python: Path | None, device: str) -> NnUNet:
    """A driver that predicts with a trained model's folder: nnU-Net asks for the trainer that its name begins with."""
    trainer = model.name.partition("__")[0]
    short = _SHORT_NAME.fullmatch(trainer)
    if short is None:
        return NnUNet(work, python=python, device=device, trainer=trainer)
    return NnUNet(work, python=python, device=device, epochs=int(short[1]), iterations=int(short[2]))


class DatasetWriter:
    """Writes cases into a raw data set of nnU-Net."""

    def __init__(self, folder: Path, channels: int) -> None:
        self.folder, self.channels, self.count = folder, channels, 0

    def add(self, name: str, image: UInt8[np.ndarray, "h w c"], mask: UInt8[np.ndarray, "h w"]) -> None:
        """One case: the picture, and its mask as lesion or not."""
        write_picture(self.folder / "imagesTr" / f"{name}_0000.png", image, self.channels)
        Image.fromarray((mask > 0).astype(np.uint8)).save(self.folder / "labelsTr" / f"{name}.png")
        self.count += 1


def write_picture(path: Path, image: UInt8[np.ndarray, "h w c"], channels: int) -> None:
    """A picture as nnU-Net's reader takes it, gray or RGB."""
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    picture.convert("L" if channels == 1 else "RGB").save(path)


def read_about(model: Path) -> dict[str, Any]:
    """A trained model's dataset.json; UserError where its pictures are not PNGs, which is all that we write."""
    about = json.loads((model / "dataset.json").read_text(encoding="utf-8"))
    if about.get("file_ending") != ".png" or len(about.get("channel_names", {})) not in (1, 3):
        raise UserError(
            f"{model}: this nnU-Net reads {about.get('file_ending')} files of {len(about.get('channel_names', {}))} "
            "channels; a judge of pictures must have been trained on gray or RGB PNGs"
        )
    return about
