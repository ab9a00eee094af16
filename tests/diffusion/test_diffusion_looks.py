"""What is looked at during training: the control probe in words, the scores, sheets drawn with averaged weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from training import settings

from laworder.data.load import load_arrays
from laworder.data.opening import open_source
from laworder.diffusion import probe
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.report import spaced
from laworder.diffusion.score import Realism, Recovery, as_pixels, disc, in_channels
from laworder.diffusion.start import starting_backbone
from laworder.diffusion.train import Held, prepare, train
from laworder.runs import read_metrics
from laworder.runs.distributed import Place


def held(tmp_path: Path, **more: object) -> Held:
    config = settings(out=tmp_path, **more)
    source = open_source(config.data, masks=None, size=config.side, phantom=config.phantom)
    pairs = load_arrays(source, config.side, 3, range(8))
    fixed = load_arrays(source, config.side, 3, range(8, 12))
    return prepare(config, starting_backbone(config), pairs, fixed, torch.device("cpu"), Place())


def told(inside: float, outside: float, **other: float) -> str:
    found = {f"val_probe_{kind}_{where}": value for kind in probe.KINDS
             for where, value in (("inside", inside), ("outside", outside))}  # fmt: skip
    return probe.verdict({**found, **other})


def test_the_probe_speaks_in_words() -> None:
    assert told(0.5, 0.1).startswith("The control is used: ")
    assert told(0.01, 0.0).startswith("The control is ignored: ")
    assert told(0.3, 0.3).startswith("The control is used, but not yet where it should be: blank and shifted and")
    partly = told(0.5, 0.1, val_probe_swapped_inside=0.0)
    assert partly.startswith("The control is ignored in part: swapped masks change nothing inside lesions")
    assert told(math.nan, 0.1).startswith("The control cannot be judged")


def test_a_generator_that_paints_the_mask_passes_and_one_that_ignores_it_does_not() -> None:
    masks = torch.zeros(3, 1, 30, 30)
    for n in range(3):
        masks[n, :, 2 + n : 8 + n, 2 : 8 + 2 * n] = 1
    scene = torch.rand(3, 3, 30, 30, generator=torch.Generator().manual_seed(0))

    def obedient(shown: torch.Tensor) -> torch.Tensor:
        return scene + shown

    others = {kind: obedient(shown) for kind, shown in probe.probes(masks).items()}
    found = probe.changes(obedient(masks), others, masks)
    assert all(found[f"val_probe_{kind}_outside"] == 0 for kind in probe.KINDS)
    assert probe.verdict(found).startswith("The control is used: ")
    deaf = probe.changes(scene, dict.fromkeys(probe.KINDS, scene), masks)
    assert probe.verdict(deaf).startswith("The control is ignored: ")


def test_an_untrained_control_is_ignored_and_the_report_says_so(tmp_path: Path) -> None:
    summary = train(settings(out=tmp_path, steps=1, optimiser__lr=1e-9))
    assert summary["verdict"].startswith("The control is ignored: blank, shifted and swapped masks leave")
    assert "The control is ignored" in (tmp_path / "report.html").read_text()


def test_realism_is_nought_for_the_real_images_and_grows_with_their_distance() -> None:
    source = open_source("phantom", masks=None, size=64, phantom=settings().phantom)
    pairs = load_arrays(source, 64, 3, range(12))
    score = Realism(pairs.images, pairs.masks)
    near = (pairs.images.float() * 0.9).to(torch.uint8)
    far = (pairs.images.float() * 0.3).to(torch.uint8)
    values = [score(images)["val_realism"] for images in (pairs.images, near, far)]
    assert values[0] == 0
    assert values[0] < values[1] < values[2]
    assert disc(pairs.images).float().mean() == pytest.approx(math.pi / 36, abs=0.01)


def test_the_judge_sees_gray_as_colour_and_other_sizes(tmp_path: Path) -> None:
    from laworder.segmenters import create

    create("order_01", in_channels=3, classes=1).save_pretrained(tmp_path)
    images = torch.randint(0, 255, (3, 1, 48, 48), dtype=torch.uint8)
    masks = torch.zeros(3, 1, 48, 48, dtype=torch.uint8)
    masks[:, :, :20] = 1
    score = Recovery(images, masks, str(tmp_path), torch.device("cpu"))
    assert score(images)["val_recovered_dice"] == score.ceiling
    assert in_channels(torch.ones(1, 3, 2, 2), 1).flatten().tolist() == pytest.approx([1.0] * 4)


def test_pictures_are_bytes_of_signed_images() -> None:
    assert as_pixels(torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])).tolist() == [0, 0, 128, 255, 255]


def test_looking_does_not_touch_the_training(tmp_path: Path) -> None:
    for every in (1, 4):
        train(settings(out=tmp_path / str(every), watch__every=every))
    often, seldom = (read_metrics(tmp_path / name / "metrics.jsonl") for name in "14")
    assert [line["loss"] for line in often] == [line["loss"] for line in seldom]


def test_a_look_draws_with_averaged_weights_and_puts_the_others_back(tmp_path: Path) -> None:
    found = held(tmp_path)
    task = found.task
    before = [p.detach().clone() for p in task.weights.values()]
    for parameter in task.weights.values():
        parameter.data.add_(1.0)
    with task.averaged():
        assert all(torch.equal(a, b) for a, b in zip(before, task.weights.values(), strict=True))
    assert all(torch.equal(a + 1, b) for a, b in zip(before, task.weights.values(), strict=True))


def test_sheets_and_strips_have_a_column_a_mask(tmp_path: Path) -> None:
    found = held(tmp_path, watch__images=3)
    numbers = found.looks(7, tmp_path)
    assert tuple(numbers) == found.looks.names
    sheet = np.asarray(Image.open(tmp_path / "looks" / "sheet-00000007.png"))
    assert sheet.shape == (4 * 36, 3 * 36, 3)
    assert set(np.unique(sheet[2:34, 2:34])) <= {0, 255}
    assert (tmp_path / "looks" / "delta-00000007.png").is_file()
    again = found.looks(8, tmp_path)
    assert again == numbers
    assert (tmp_path / "looks" / "sheet-00000008.png").read_bytes() == (
        tmp_path / "looks" / "sheet-00000007.png"
    ).read_bytes()


def test_modules_are_left_in_the_mode_they_were_in(tmp_path: Path) -> None:
    found = held(tmp_path)
    modes = [module.training for module in found.task.backbone.modules()]
    found.looks(1, tmp_path)
    assert [module.training for module in found.task.backbone.modules()] == modes


def test_the_report_shows_first_and_last_and_some_between() -> None:
    paths = [Path(str(n)) for n in range(10)]
    assert [path.name for path in spaced(paths, 4)] == ["0", "3", "6", "9"]
    assert spaced(paths[:2], 4) == paths[:2]


@pytest.mark.slow
@pytest.mark.real_data
def test_backbone_small_trains_on_real_images_with_the_published_autoencoder(tmp_path: Path, shared_data: Path) -> None:
    """Both stages, a few steps: latents of TAEF2 have mean 0 and deviation 1, and the model folder holds it."""
    train_set = shared_data / "polyps" / "TrainDataset"
    for kind in ("image", "masks"):
        (tmp_path / kind).mkdir()
        for path in sorted((train_set / kind).iterdir())[:12]:
            (tmp_path / kind / path.name).symlink_to(path)
    more = {"data": str(tmp_path / "image"), "masks": tmp_path / "masks", "backbone": "small", "size": 64,
            "network__autoencoder": shared_data.parent / "weights" / "taef2", "steps": 2, "split_by": "image",
            "network__widths": (32, 32), "network__blocks": 1, "flips": "none"}  # fmt: skip
    train(settings(out=tmp_path / "prior", stage="prior", **more))
    train(settings(out=tmp_path / "law", prior=tmp_path / "prior", **more))
    model = Backbone.load(tmp_path / "law")
    assert (model.latent_channels, model.factor, model.prediction) == (32, 8, "v_prediction")
    assert (tmp_path / "law" / "model" / "vae" / "config.json").is_file()
    assert float(model.std.mean()) == pytest.approx(0.8, abs=0.4)
