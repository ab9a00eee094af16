"""ORDER inside the real nnU-Net v2: plan, one epoch, predict, on twelve tiny images.

nnU-Net lives in an environment of its own (tools/nnunet_env.py makes it, once, from the package index).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from laworder.segmenters import nnunet

ROOT = Path(__file__).parents[2]

ONE_EPOCH = """
from laworder.segmenters.nnunet.order_trainer import nnUNetTrainerORDER


class OneEpoch(nnUNetTrainerORDER):
    def __init__(self, plans, configuration, fold, dataset_json, device=None):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs, self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = 1, 4, 1

    def on_train_start(self):
        super().on_train_start()
        self.before = {k: v.clone() for k, v in self.network.state_dict().items()}

    def on_train_end(self):
        moved = sum(not v.equal(self.before[k]) for k, v in self.network.state_dict().items())
        print("NETWORK", type(self.network).__name__, "MOVED", moved, "OF", len(self.before))
        super().on_train_end()
"""


def dataset(folder: Path) -> None:
    """Twelve 64² images of a bright disc on noise, in nnU-Net's layout."""
    rng = np.random.default_rng(0)
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    y, x = np.mgrid[:64, :64]
    for n in range(12):
        cy, cx = rng.integers(16, 48, 2)
        disc = (y - cy) ** 2 + (x - cx) ** 2 < 100
        pixels = rng.integers(0, 100, (64, 64, 3)) + 120 * disc[..., None]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "imagesTr" / f"case_{n:03}_0000.png")
        Image.fromarray(disc.astype(np.uint8)).save(folder / "labelsTr" / f"case_{n:03}.png")
    about = {
        "channel_names": {"0": "R", "1": "G", "2": "B"},
        "labels": {"background": 0, "lesion": 1},
        "numTraining": 12,
        "file_ending": ".png",
        "overwrite_image_reader_writer": "NaturalImage2DIO",
    }
    (folder / "dataset.json").write_text(json.dumps(about))


def test_the_trainer_folder_holds_one_module() -> None:
    modules = [p.name for p in nnunet.trainer_folder().glob("*.py") if p.name != "__init__.py"]
    assert modules == ["order_trainer.py"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_one_epoch_inside_nnunet(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "nnunet_env.py"], check=True, capture_output=True, text=True
    )
    bin_folder = Path(made.stdout.split()[-1]).parent
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "one_epoch.py").write_text(ONE_EPOCH)
    env = os.environ | {
        "nnUNet_raw": str(tmp_path / "raw"),
        "nnUNet_preprocessed": str(tmp_path / "preprocessed"),
        "nnUNet_results": str(tmp_path / "results"),
        "nnUNet_extTrainer": f"{nnunet.trainer_folder()}{os.pathsep}{tmp_path / 'trainers'}",
        "nnUNet_n_proc_DA": "2",
        "nnUNet_compile": "f",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    dataset(tmp_path / "raw" / "Dataset001_Discs")

    def run(command: str, *args: str) -> str:
        done = subprocess.run([bin_folder / command, *args], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    run("nnUNetv2_plan_and_preprocess", "-d", "1", "-c", "2d", "-np", "1", "-npfp", "1", "--verify_dataset_integrity")
    log = run("nnUNetv2_train", "1", "2d", "0", "-tr", "OneEpoch", "-device", "cpu")
    said = next(line for line in log.splitlines() if line.startswith("NETWORK")).split()
    assert said[1] == "ORDER"
    assert int(said[3]) > 0.9 * int(said[5])
    images, out = tmp_path / "raw" / "Dataset001_Discs" / "imagesTr", tmp_path / "predicted"
    run(
        "nnUNetv2_predict", "-i", str(images), "-o", str(out), "-d", "1", "-c", "2d", "-f", "0", "-tr", "OneEpoch",
        "-device", "cpu", "-npp", "1", "-nps", "1", "--disable_tta",
    )  # fmt: skip
    masks = sorted(out.glob("*.png"))
    assert len(masks) == 12
    assert all(np.asarray(Image.open(mask)).shape == (64, 64) for mask in masks)
    find = "from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as f; "
    done = run("python", "-c", find + "print(f('nnUNetTrainerORDER').__mro__[1].__name__)")
    assert done.split()[-1] == "nnUNetTrainer"
