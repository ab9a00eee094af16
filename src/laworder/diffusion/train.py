"""`laworder synth train`: pairs → a run folder with a model that draws an image for a mask."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from laworder.config import to_dict
from laworder.console import note, say
from laworder.data.load import Arrays, load_arrays
from laworder.data.opening import PHANTOM, open_source
from laworder.data.pairs import Source
from laworder.data.split_files import names_hash
from laworder.data.splits import Split
from laworder.diffusion import latents
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import MODEL
from laworder.diffusion.learners import begins_from_nothing, build_schedule
from laworder.diffusion.looks import Looks
from laworder.diffusion.memory import too_large
from laworder.diffusion.results import SUMMARY, Held, card_of, write_results
from laworder.diffusion.score import Realism, Recovery, Score, as_text, disc
from laworder.diffusion.settings import TrainConfig
from laworder.diffusion.sharding import check_sharding
from laworder.diffusion.start import prior_hash, prompts_of, starting_backbone
from laworder.diffusion.task import DiffuseTask
from laworder.errors import UserError, nearest
from laworder.law import list_objectives
from laworder.runs import Plan, Run, read_manifest, train_loop
from laworder.runs.distributed import Place, from_first, numbers_from_first, processes
from laworder.runs.mirrors import mirrored
from laworder.segmentation.parts import parts_of
from laworder.segmentation.train import pick_device, share_of, source_digest

Config = TrainConfig
KIND = "synth train"
MANIFEST = "manifest.json"
MAY_CHANGE = (
    *("out", "device", "cache_gb", "log", "watch.batch"),
    *("network.compile", "network.gradient_checkpointing", "network.shard"),
)


def plan(config: TrainConfig) -> list[str]:
    """What `run` would do, in words."""
    source = f"{config.phantom.count} drawn pairs" if config.data == PHANTOM else f"the pairs in {config.data}"
    rule = f"hold out {config.held_out:.0%} by {config.split_by} (seed {config.seed})"
    if config.split is not None:
        rule = f"split them as fold {config.fold} of {config.split} says"
    start = f"the model in {config.prior}" if config.prior else (config.network.weights or "nothing")
    what = "an image prior, without masks" if config.stage == "prior" else f"control by masks ({config.objective})"
    if begins_from_nothing(config):
        what += "; without a prior there is no trained UNet to keep, and all of it learns along with the ControlNet"
    kept = "recovered Dice by the judge" if config.watch.judge and config.stage == "control" else "realism (no judge)"
    fixed = f"draw {config.watch.validation} fixed masks" if config.stage == "control" else "draw images"
    return [
        f"read {source} at {config.side}×{config.side}, {rule}",
        f"encode them once, as {config.backbone} sees them",
        f"train {what}, from {start}, for {config.steps} steps of {config.batch} images on "
        f"{pick_device(config.device)}",
        f"every {config.watch.every} steps {fixed} with averaged weights, and keep the best by {kept}",
        f"write {config.out / MODEL}, sheets of samples, metrics and report.html",
    ]


def run(config: TrainConfig) -> int:
    """Train, or go on training, and say where the results lie."""
    with processes() as place:
        summary = train(config)
    if place.first:
        value = summary["metrics"][summary["best"]]
        told = f"{summary['best'].removeprefix('val_')} {as_text(value)}"
        say(f"{told} at step {summary['step']}, on {summary['validation']}")
        if "verdict" in summary:
            say(summary["verdict"])
        say(f"model: {config.out / MODEL}; report: {config.out / 'report.html'}")
    return 0


def train(config: TrainConfig) -> dict[str, Any]:
    """The whole run; what it returns is in `training.json`.

    Under `torchrun` or `accelerate launch` each process computes its share of every batch; the first one writes.
    """
    if config.stage == "control" and config.objective not in list_objectives():
        raise UserError(f"objective: unknown {config.objective!r}{nearest(config.objective, list_objectives())}")
    build_schedule(config.optimiser, config.steps)  # refuses a warm-up longer than the run
    with processes() as place:
        check_sharding(config, place)
        return _train(config, place, place.device(pick_device(config.device)))


def _train(config: TrainConfig, place: Place, device: torch.device) -> dict[str, Any]:
    share = share_of(config.batch, config.accumulate, place.world)
    source = open_source(config.data, masks=config.masks, size=config.side, phantom=config.phantom)
    parts = parts_of(config, source)
    held = None if _is_done(config) else _hold(config, source, parts, device, place)
    data = _fingerprints(config, source, parts, place, device)
    with Run(
        config.out,
        config=to_dict(config),
        kind=KIND,
        seeds={"seed": config.seed},
        data=data,
        device=device,
        may_change=MAY_CHANGE,
        rank=place.rank,
        world=place.world,
    ) as current:
        if held is None:
            if place.first:
                note(f"{config.out} is finished; nothing to train")
            return json.loads((config.out / SUMMARY).read_text(encoding="utf-8"))
        held.card["data"] = {"source": config.data, "hash": data["pairs"], "pairs": len(parts.train)}
        return _fit(config, current, held, share)


def _is_done(config: TrainConfig) -> bool:
    return (config.out / MANIFEST).is_file() and read_manifest(config.out).outcome == "done"


def _hold(config: TrainConfig, source: Source, parts: Split, device: torch.device, place: Place) -> Held:
    """All that can be wrong with weights and data is said here, before a folder is made."""
    backbone = starting_backbone(config)
    pairs = load_arrays(source, config.side, config.image_channels, parts.indices("train", source.names))
    return prepare(config, backbone, pairs, _fixed_pairs(config, source, parts), device, place)


def _fingerprints(
    config: TrainConfig, source: Source, parts: Split, place: Place, device: torch.device
) -> dict[str, str]:
    """Hashes of the data, of who trains on them, and of the weights it starts from."""
    pairs = source_digest(source, place, device)
    named = {"pairs": pairs, "train": names_hash(parts.train), "held_out": names_hash(parts.val)}
    return {**named, **prior_hash(config)}


def _fixed_pairs(config: TrainConfig, source: Source, parts: Split) -> Arrays:
    """The validation pairs that every look draws: the first held-out ones, in stage control those with a lesion."""
    held = load_arrays(source, config.side, config.image_channels, parts.indices("val", source.names))
    chosen = list(range(len(held.names)))
    if config.stage == "control":
        latents.check_masks(held, what="held_out")
        chosen = [i for i in chosen if bool((held.masks[i] > 0).any())]
    chosen = chosen[: config.watch.validation]
    if len(chosen) < 2:
        raise UserError(f"held_out: {len(chosen)} held-out pairs have a lesion; looks need at least 2: hold out more")
    return Arrays(held.images[chosen], held.masks[chosen], [held.names[i] for i in chosen])


def prepare(
    config: TrainConfig, backbone: Backbone, pairs: Arrays, fixed: Arrays, device: torch.device, place: Place
) -> Held:
    """Encode everything once, then keep only what training needs on the device."""
    if config.stage == "control":
        latents.check_masks(pairs, what="masks")
    resize, lost = latents.choose_resize(pairs.masks, backbone.side, config.mask_resize)
    if lost and place.first and config.stage == "control":
        note(f"{lost:.1%} of the lesions' masks vanish on the latents' grid under nearest; mask_resize is {resize}")
    prompts = prompts_of(config)
    table = backbone.embed(prompts)
    with latents.present(backbone.autoencoder, device):
        if config.backbone == "small" and config.prior is None:
            latents.measure_latents(backbone, pairs, device)
        store = _store(config, backbone, pairs, device, prompts, flips=config.flips)
        seen = _store(config, backbone, fixed, device, prompts, flips="none")
    if config.stage == "control" and config.objective == "distillation":
        store.images = pairs.images
    store.keep_on(device, config.cache_gb)
    task = DiffuseTask(backbone, config, device, store=store, table=table, resize=resize, place=place)
    score = _score(config, fixed, device)
    return Held(task, Looks(task, config, fixed, seen, score), score, card_of(config, task, resize))


def _store(
    config: TrainConfig,
    backbone: Backbone,
    pairs: Arrays,
    device: torch.device,
    prompts: tuple[str, ...],
    *,
    flips: str,
) -> latents.Store:
    encoded = latents.encode_all(backbone, pairs, device, flips=flips)
    rows = latents.prompt_rows(pairs.masks, config, prompts)
    masks: Tensor = (pairs.masks > 0).to(torch.uint8)
    return latents.Store(encoded, masks, rows, pairs.names)


def _score(config: TrainConfig, fixed: Arrays, device: torch.device) -> Score:
    if config.stage == "prior":
        return Realism(fixed.images, disc(fixed.images))
    if config.watch.judge is None:
        return Realism(fixed.images, fixed.masks)
    return Recovery(fixed.images, fixed.masks, config.watch.judge, device)


def _fit(config: TrainConfig, current: Run, held: Held, share: int) -> dict[str, Any]:
    task, looks, place = held.task, held.looks, held.task.place
    schedule = Plan(
        steps=config.steps,
        seed=config.seed,
        accumulate=config.accumulate,
        clip=config.optimiser.clip,
        schedule=build_schedule(config.optimiser, config.steps),
        save_every=config.save_every,
        eval_every=config.watch.every,
        best=held.score.best,
        best_mode=held.score.mode,
    )

    def look(step: int) -> dict[str, float]:
        found = looks(step, current.folder)
        own = None if found is None else list(found.values())
        return dict(zip(looks.names, numbers_from_first(own, len(looks.names), place.world, task.device), strict=True))

    batches = latents.position_batches(len(task.store.names), share)
    result = failed = None
    try:
        with mirrored(current, config.log):
            result = train_loop(current, task, batches, schedule, evaluate=look)
    except torch.OutOfMemoryError as error:
        failed = error.with_traceback(None)  # whose frames hold the activations that did not fit
    if result is None:
        raise too_large(task, config, looking=looks.looking) from failed
    from_first(result.step, place.world, task.device)  # nobody reads the best weights before they are written
    if not place.first:
        return {}
    return write_results(config, current, held)
