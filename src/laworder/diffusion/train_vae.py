"""`laworder synth train-vae`: images → a run folder with an autoencoder, for `synth train --network.autoencoder`."""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import torch

from laworder.config import to_dict
from laworder.console import note, say
from laworder.data.load import Arrays, load_arrays
from laworder.data.opening import PHANTOM, open_source
from laworder.data.pairs import Source
from laworder.data.split_files import names_hash
from laworder.data.splits import Split
from laworder.diffusion.averages import put_kept
from laworder.diffusion.folders import MODEL
from laworder.diffusion.latents import position_batches
from laworder.diffusion.vae.network import check, fresh_autoencoder
from laworder.diffusion.vae.report import headline, write_report
from laworder.diffusion.vae.settings import VaeConfig
from laworder.diffusion.vae.task import AutoencodeTask, psnr
from laworder.runs import Plan, Run, atomic_write, cosine, read_metrics, train_loop
from laworder.runs.distributed import Place, from_first, numbers_from_first, processes
from laworder.runs.files import partial_name
from laworder.runs.mirrors import mirrored
from laworder.segmentation.judge import json_text
from laworder.segmentation.parts import parts_of
from laworder.segmentation.train import pick_device, share_of, source_digest

Config = VaeConfig
KIND = "synth train-vae"
SUMMARY = "autoencoder.json"
NAMES = ("val_psnr", "val_psnr_lesion")
MAY_CHANGE = ("out", "device", "log")


def plan(config: VaeConfig) -> list[str]:
    """What `run` would do, in words."""
    source = f"{config.phantom.count} drawn pairs" if config.data == PHANTOM else f"the pairs in {config.data}"
    network, factor = config.network, 2 ** (len(config.network.widths) - 1)
    side = config.size // factor
    return [
        f"read {source} at {config.size}×{config.size}, hold out a part of them",
        f"fit an autoencoder ({network.kind}) with latents of {side}×{side}×{network.latent_channels}, for "
        f"{config.steps} steps of {config.batch} images on {pick_device(config.device)}",
        "keep the weights with the best PSNR on held-out images",
        f"write {config.out / MODEL}, metrics and report.html",
    ]


def run(config: VaeConfig) -> int:
    """Fit, or go on fitting, and say where the results lie."""
    with processes() as place:
        summary = train_vae(config)
    if place.first:
        say(headline(summary))
        say(f"autoencoder: {config.out / MODEL}; report: {config.out / 'report.html'}")
    return 0


def train_vae(config: VaeConfig) -> dict[str, Any]:
    """The whole run; what it returns is in `autoencoder.json`."""
    check(config)
    with processes() as place:
        return _train(config, place, place.device(pick_device(config.device)))


def _train(config: VaeConfig, place: Place, device: torch.device) -> dict[str, Any]:
    share = share_of(config.batch, config.accumulate, place.world)
    source = open_source(config.data, masks=config.masks, size=config.size, phantom=config.phantom)
    parts = parts_of(config, source)
    with Run(
        config.out,
        config=to_dict(config),
        kind=KIND,
        seeds={"seed": config.seed},
        data=_fingerprints(source, parts, place, device),
        device=device,
        may_change=MAY_CHANGE,
        rank=place.rank,
        world=place.world,
    ) as current:
        if current.finished:
            if place.first:
                note(f"{config.out} is finished; nothing to train")
            return json.loads((config.out / SUMMARY).read_text(encoding="utf-8"))
        pairs, held = (
            load_arrays(source, config.size, 3, parts.indices(part, source.names)) for part in ("train", "val")
        )
        task = AutoencodeTask(fresh_autoencoder(config), config, pairs, device, place)
        _fit(config, current, task, held, share)
        return _write_results(config, current, task, held) if place.first else {}


def _fingerprints(source: Source, parts: Split, place: Place, device: torch.device) -> dict[str, str]:
    pairs = source_digest(source, place, device)
    return {"pairs": pairs, "train": names_hash(parts.train), "held_out": names_hash(parts.val)}


def _fit(config: VaeConfig, current: Run, task: AutoencodeTask, held: Arrays, share: int) -> None:
    rates, place = config.optimiser, task.place
    schedule = Plan(
        steps=config.steps,
        seed=config.seed,
        accumulate=config.accumulate,
        clip=rates.clip,
        schedule=cosine(config.steps, warmup=min(rates.warmup, config.steps // 10)),
        save_every=config.save_every,
        eval_every=config.look_every,
        best=NAMES[0],
    )

    def look(_: int) -> dict[str, float]:
        own = list(judged(task, held)) if place.first else None
        return dict(zip(NAMES, numbers_from_first(own, len(NAMES), place.world, task.device), strict=True))

    with mirrored(current, config.log):
        result = train_loop(current, task, position_batches(len(task.pairs.names), share), schedule, evaluate=look)
    from_first(result.step, place.world, task.device)  # nobody reads the best weights before they are written


def judged(task: AutoencodeTask, held: Arrays) -> tuple[float, float]:
    """PSNR over whole images and inside lesions, means over images."""
    made = task.reconstruct(held.images)
    whole = psnr(made, held.images, torch.ones_like(held.masks)).mean()
    return float(whole), float(psnr(made, held.images, held.masks).nanmean())


def _write_results(config: VaeConfig, current: Run, task: AutoencodeTask, held: Arrays) -> dict[str, Any]:
    best = current.checkpoints.best(only=("modules", "extra"))
    line = next(line for line in read_metrics(current.folder / "metrics.jsonl") if line["step"] == best.step)
    put_kept(task.network, best.state)
    side = config.size // 2 ** (len(config.network.widths) - 1)
    summary = {
        "step": best.step,
        "steps": config.steps,
        "images": len(held.names),
        **{name.removeprefix("val_"): line[name] if math.isfinite(line[name]) else None for name in NAMES},
        "latents": f"{side}×{side}×{config.network.latent_channels}",
        "kind": config.network.kind,
    }
    _save(task, config)
    atomic_write(current.folder / SUMMARY, json_text(summary))
    write_report(current, summary, held, task.reconstruct(held.images), f"Autoencoder of {config.data}")
    return summary


def _save(task: AutoencodeTask, config: VaeConfig) -> None:
    """The model folder, whole or not at all."""
    target = config.out / MODEL
    partial = partial_name(target)
    try:
        task.network.eval().save_pretrained(partial, safe_serialization=True)
        shutil.rmtree(target, ignore_errors=True)
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
