"""`laworder synth train-vae`: it learns, goes on to the same bits, and what it writes is taken by backbone small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from training import settings

from laworder.cli import main
from laworder.config import build
from laworder.diffusion.autoencoders import open_autoencoder
from laworder.diffusion.train import train
from laworder.diffusion.train_vae import plan, train_vae
from laworder.diffusion.vae.settings import VaeConfig
from laworder.diffusion.vae.task import psnr, reconstruction
from laworder.errors import UserError
from laworder.runs import Checkpoints, read_metrics

SMALL = {
    "data": "phantom",
    "device": "cpu",
    "size": 32,
    "phantom.count": 16,
    "held_out": 0.3,
    "batch": 4,
    "steps": 4,
    "look_every": 2,
    "network.widths": (8, 8, 8),
    "network.latent_channels": 4,
    "log": "none",
}


def vae_settings(**more: Any) -> VaeConfig:
    return build(VaeConfig, {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}})


@pytest.mark.parametrize("kind", ["kl", "tiny"])
def test_backbone_small_trains_on_its_latents(tmp_path: Path, kind: str) -> None:
    train_vae(vae_settings(out=tmp_path / "vae", network__kind=kind))
    autoencoder = open_autoencoder(tmp_path / "vae" / "model")
    assert (autoencoder.factor, autoencoder.latent_channels) == (4, 4)
    more = {"backbone": "small", "network__autoencoder": tmp_path / "vae", "network__widths": (32, 32)}
    train(settings(out=tmp_path / "run", network__blocks=1, steps=1, watch__every=1, **more))
    assert (tmp_path / "run" / "model" / "vae" / "config.json").is_file()


def test_the_command_says_how_good_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{k.replace('_', '-')}={v}" for k, v in SMALL.items() if k not in ("data", "network.widths")]
    words += ["--network.widths=8,8,8", f"--out={tmp_path}"]
    assert main(["synth", "train-vae", "phantom", *words]) == 0
    said = capsys.readouterr().out
    assert said.startswith("PSNR ")
    assert "inside lesions" in said
    summary = json.loads((tmp_path / "autoencoder.json").read_text())
    assert summary["latents"] == "8×8×4"
    assert "What comes back" in (tmp_path / "report.html").read_text()
    stamp = (tmp_path / "report.html").stat().st_mtime_ns
    assert main(["synth", "train-vae", "phantom", *words]) == 0
    assert (tmp_path / "report.html").stat().st_mtime_ns == stamp
    assert "latents of 8×8×4" in "\n".join(plan(vae_settings()))


@pytest.mark.parametrize("more", [{"precision": "bf16", "flips": "hv"}, {"optimiser__ema": 0.0, "loss__lesion": 4.0}])
def test_other_ways_to_fit(tmp_path: Path, more: dict[str, Any]) -> None:
    summary = train_vae(vae_settings(out=tmp_path, **more))
    assert summary["psnr"] > 0


def test_it_stops_and_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from laworder.diffusion.vae.task import AutoencodeTask

    train_vae(vae_settings(out=tmp_path / "whole", save_every=1))
    after = AutoencodeTask.after_step

    def cut(self: AutoencodeTask, step: int) -> None:
        after(self, step)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AutoencodeTask, "after_step", cut)
        with pytest.raises(KeyboardInterrupt):
            train_vae(vae_settings(out=tmp_path / "cut", save_every=1))
    train_vae(vae_settings(out=tmp_path / "cut", save_every=1))
    names = ("metrics.jsonl", "model/diffusion_pytorch_model.safetensors")
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_parts_of_a_batch_make_the_same_update(tmp_path: Path) -> None:
    for parts in (1, 2):
        train_vae(vae_settings(out=tmp_path / str(parts), accumulate=parts))
    one, two = (read_metrics(tmp_path / name / "metrics.jsonl") for name in "12")
    for a, b in zip(one, two, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    more = {"network__widths": (16, 32, 32), "optimiser__lr": 2e-3, "size": 64, "network__latent_channels": 8}
    summary = train_vae(vae_settings(out=tmp_path, steps=150, batch=8, phantom__count=60, look_every=50, **more))
    looks = [line["val_psnr"] for line in read_metrics(tmp_path / "metrics.jsonl") if "val_psnr" in line]
    assert summary["psnr"] > 20
    assert looks[-1] > looks[0]


def test_psnr_by_hand() -> None:
    real = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    made, where = real.clone(), torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    where[0, :, :2], made[0, :, :2] = 1, 51
    assert float(psnr(made, real, where)[0]) == pytest.approx(13.9794, abs=1e-4)
    assert float(psnr(made, real, torch.ones_like(where))[0]) == pytest.approx(16.9897, abs=1e-4)
    assert bool(psnr(made, real, where)[1].isnan())


def test_the_loss_by_hand() -> None:
    real = torch.zeros(1, 1, 2, 2)
    made = torch.tensor([[[[1.0, 1.0], [0.0, 0.0]]]])
    ones = torch.ones(1, 1, 2, 2)
    assert float(reconstruction(made, real, ones, scales=1, edges=0.0)) == 0.5
    assert float(reconstruction(made, real, ones, scales=1, edges=2.0)) == 2.5
    assert float(reconstruction(real, real, ones, scales=1, edges=2.0)) == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"network__widths": (8, 12)}, "network.widths: each must be a multiple of 8, not 8, 12"),
        ({"network__kind": "tiny", "network__widths": (8, 16)}, "network.widths: tiny has one width on all levels"),
        ({"size": 34}, "size must be a multiple of 4 for 3 levels, not 34"),
        ({"size": 16, "loss__scales": 5}, "loss.scales: 5 halvings leave too little of 16 pixels"),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is_written(
    tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        train_vae(vae_settings(out=tmp_path / "run", **more))
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run").exists()


def test_the_checkpoint_holds_the_averaged_weights_too(tmp_path: Path) -> None:
    train_vae(vae_settings(out=tmp_path))
    state = Checkpoints(tmp_path / "checkpoints").best().state
    assert len(state["extra"]["ema"]["shadow_params"]) == len(state["modules"]["weights"])
