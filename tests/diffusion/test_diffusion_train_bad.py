"""What can go wrong with a training is said in one line, before anything is written or spoilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import random_sd15
from PIL import Image
from training import settings, trained_prior

from laworder.cli import main
from laworder.diffusion.autoencoders import Pixels
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.latents import prompt_rows
from laworder.diffusion.looks import Looks
from laworder.diffusion.task import DiffuseTask
from laworder.diffusion.train import train
from laworder.errors import UserError
from laworder.runs import read_manifest


def folder_of_pairs(folder: Path, *, invert: bool = False, empty: bool = False, side: int = 40) -> Path:
    draw = np.random.default_rng(0)
    folder.mkdir()
    for n in range(8):
        Image.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / f"{n}.png")
        mask = np.zeros((side, side), dtype=np.uint8)
        if not empty:
            mask[10 : 20 + n, 12:24] = 255
        Image.fromarray(255 - mask if invert else mask).save(folder / f"{n}_mask.png")
    return folder


def refused(out: Path, message: str, **more: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        train(settings(out=out, **more))
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_masks_the_wrong_way_round(tmp_path: Path) -> None:
    data = folder_of_pairs(tmp_path / "in", invert=True)
    refused(tmp_path / "run", "the masks look inverted.*lesions must be white on black", data=str(data), held_out=0.3)


def test_masks_without_lesions(tmp_path: Path) -> None:
    data = folder_of_pairs(tmp_path / "in", empty=True)
    refused(tmp_path / "run", "no mask has a lesion", data=str(data), held_out=0.3)


def test_masks_of_another_size(tmp_path: Path) -> None:
    data = folder_of_pairs(tmp_path / "in", side=32)
    with pytest.raises(UserError, match=r"0\.png"):
        train(settings(data=str(data), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_latents_that_are_no_numbers_name_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Pixels.encode

    def broken(self: Pixels, images: torch.Tensor, generator: Any = None) -> torch.Tensor:
        found = inner(self, images, generator)
        found[3] = float("nan")
        return found

    monkeypatch.setattr(Pixels, "encode", broken)
    refused(tmp_path / "run", r"latents that are no numbers \(NaN\) for 1 of 12 images, first '.+': look at that image")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"objective": "lav"}, "objective: unknown 'lav'; did you mean 'law'"),
        ({"batch": 5, "accumulate": 2}, "batch: 5 images cannot be shared out evenly over 2 parts"),
        ({"optimiser__schedule": "cosine", "optimiser__warmup": 9}, "needs a warm-up of 0 to 3 steps, not 9"),
        ({"objective": "uniform", "law__tau": 1.0}, "objective 'uniform': .*tau"),
        ({"phantom__count": 10, "held_out": 0.01, "split_by": "image"}, "looks need at least 2: hold out more"),
        ({"watch__judge": "order_nowhere"}, "'order_nowhere' is no folder"),
        ({"prior": "/nowhere"}, "/nowhere: no model folder"),
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    refused(tmp_path / "run", message, **more)


@pytest.mark.filterwarnings("ignore:The `local_dir_use_symlinks` argument")
def test_a_hub_id_that_cannot_be_had_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = "cannot load unet of someone/gone: .*fetch it with `hf download someone/gone` where there is a network"
    refused(tmp_path / "run", message, backbone="sd15", network__weights="someone/gone", size=64)


def test_each_lesion_class_has_a_prompt(tmp_path: Path) -> None:
    masks = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    masks[1, :, :2], masks[2, :, :2], masks[2, :, 2:7] = 1, 1, 2
    config = settings(out=tmp_path, prompt="nothing", class_prompts=("cyst", "tumour"))
    assert prompt_rows(masks, config, ("", "nothing", "cyst", "tumour")).tolist() == [1, 2, 3]
    config = settings(out=tmp_path, class_prompts=("cyst",))
    with pytest.raises(UserError, match="class_prompts: 1 given, but the masks hold lesion class 2"):
        prompt_rows(masks, config, ("", "cyst"))


def test_weights_that_lack_a_file_name_it_and_how_to_get_it(tmp_path: Path) -> None:
    weights = random_sd15(tmp_path / "sd")
    next((weights / "unet").glob("*.safetensors")).unlink()
    refused(
        tmp_path / "run", "cannot load unet of .*sd.*complete the folder", backbone="sd15", size=64,
        network__weights=str(weights),
    )  # fmt: skip


def test_a_checkpoint_of_another_backbone(tmp_path: Path) -> None:
    prior = trained_prior(tmp_path / "prior", steps=1)
    out = tmp_path / "run"
    refused(out, "a model of backbone tiny, not small; train with --backbone tiny", prior=prior, backbone="small")
    refused(out, "was trained at size 32, not 48; set --size to it", prior=prior, size=48)
    refused(out, "draws images of 3 channels, not 1", prior=prior, channels=1)
    refused(out, "predicts sample, not epsilon", prior=prior, noise__prediction="epsilon")
    weights = next((prior / "model" / "unet").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    refused(out, "diffusers cannot load it", prior=prior)


def test_another_start_is_not_gone_on_from(tmp_path: Path) -> None:
    priors = [trained_prior(tmp_path / f"prior-{seed}", steps=1, seed=seed) for seed in (0, 1)]
    link = tmp_path / "prior"
    link.symlink_to(priors[0])
    train(settings(out=tmp_path / "run", prior=link))
    link.unlink()
    link.symlink_to(priors[1])
    with pytest.raises(UserError, match="prior"):
        train(settings(out=tmp_path / "run", prior=link))


def out_of_memory_above(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    inner = DiffuseTask.micro_step

    def limited(self: DiffuseTask, batch: Any, step: int, micro: int) -> Any:
        if len(batch) > images:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(self, batch, step, micro)

    monkeypatch.setattr(DiffuseTask, "micro_step", limited)


def test_not_enough_memory_says_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory_above(monkeypatch, 3)
    with pytest.raises(UserError, match=r"batch: 8 images at 32² .* 3 do: use --accumulate 4, .* or --batch 3; or"):
        train(settings(out=tmp_path / "run", batch=8))
    assert read_manifest(tmp_path / "run").outcome.startswith("failed")
    assert not (tmp_path / "run" / "model").exists()
    train(settings(out=tmp_path / "parts", batch=8, accumulate=4))


def test_not_enough_memory_for_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory_above(monkeypatch, 0)
    with pytest.raises(UserError, match=r"not even one does: .* or with --network.gradient-checkpointing"):
        train(settings(out=tmp_path / "run"))


def test_not_enough_memory_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Looks.draw

    def limited(self: Looks, *args: Any, **more: Any) -> Any:
        if self.config.watch.batch > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(self, *args, **more)

    monkeypatch.setattr(Looks, "draw", limited)
    with pytest.raises(UserError, match=r"watch.batch: drawing 16 images at once .* set --watch.batch lower"):
        train(settings(out=tmp_path / "run"))
    train(settings(out=tmp_path / "run", watch__batch=2))
    assert (tmp_path / "run" / "model" / "laworder.json").is_file()


def test_the_command_ends_with_one_line_and_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "train", "phantom", "--backbone=sd15", f"--out={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err.strip()
    assert "network.weights: sd15 starts from pretrained weights" in said
    assert "\n" not in said


def test_a_loss_that_is_no_number_stops_before_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Backbone.denoise

    def broken(self: Backbone, *args: Any, **more: Any) -> torch.Tensor:
        found = inner(self, *args, **more)
        return found * float("nan") if torch.is_grad_enabled() else found

    monkeypatch.setattr(Backbone, "denoise", broken)
    with pytest.raises(UserError, match="step 1: the loss is nan on "):
        train(settings(out=tmp_path / "run"))
