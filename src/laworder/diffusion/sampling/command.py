"""`laworder synth sample`: masks → images, as prepared data that says where each image came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from laworder.config import to_dict
from laworder.console import note, say
from laworder.data.pairs import Source
from laworder.data.sources.images import shown
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.folders import model_hash, read_card
from laworder.diffusion.sampling.drawing import Drawing
from laworder.diffusion.sampling.engine import Engine
from laworder.diffusion.sampling.finish import finish
from laworder.diffusion.sampling.jobs import Job, chosen, even_batch, jobs_of
from laworder.diffusion.sampling.masks import Masks, Survey, facts_of, open_masks, survey
from laworder.diffusion.sampling.outfolder import PARTS, OutFolder
from laworder.diffusion.sampling.prompts import Prompts
from laworder.diffusion.sampling.provenance import Origin
from laworder.diffusion.sampling.recovery import Judge, in_words, judge_all
from laworder.diffusion.sampling.settings import Recipe, SampleConfig, recipe, shard_of
from laworder.errors import UserError
from laworder.runs import Lock, Manifest
from laworder.runs.distributed import Place, processes
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.train import pick_device

Config = SampleConfig
KIND = "synth sample"


@dataclass(frozen=True)
class Asked:
    """The set that a config asks for, and this process's part of it; nothing is decoded, loaded or written yet."""

    config: SampleConfig
    card: dict[str, Any]
    recipe: Recipe
    source: Source
    jobs: list[Job]
    part: int
    parts: int

    @classmethod
    def by(cls, config: SampleConfig, place: Place) -> Asked:
        """UserError where the model, the masks or an image's name is missing."""
        card = read_card(config.model)
        if card.get("stage") == "prior":
            raise UserError(f"{config.model}: trained without masks (stage prior); train its stage control first")
        shard, shards = shard_of(config.shard)
        how, source = recipe(config, card), open_masks(config, card["size"])
        jobs = jobs_of(list(source.names), list(source.groups), count=config.count, augment=config.augment)
        chosen(jobs, config.only)
        return cls(config, card, how, source, jobs, shard * place.world + place.rank, shards * place.world)

    @property
    def size(self) -> int:
        return self.card["size"]

    @property
    def mine(self) -> list[Job]:
        """What this process makes."""
        return chosen(self.jobs, self.config.only)[self.part :: self.parts]

    @property
    def origin(self) -> Origin:
        return Origin.of(self.card, self.recipe, varied=self.config.augment)

    def engine(self, device: torch.device) -> Engine:
        """The model, ready to draw. The batch does not depend on what is there already."""
        batch = even_batch(len(self.mine), self.config.batch)
        return Engine(Backbone.load(self.config.model, device), self.recipe, batch=batch, compile=self.config.compile)

    def manifest(self, found: Survey, device: torch.device) -> Manifest:
        return Manifest(
            kind=KIND,
            command=command_line(),
            config=jsonable(to_dict(self.config)),
            seeds={"seed": self.config.seed},
            data={"model": model_hash(self.card), "masks": found.digest},
            device=describe_device(device),
        )


def plan(config: SampleConfig) -> list[str]:
    """What `run` would do, in words. Reads the model's card and the names of the masks, nothing else."""
    asked = Asked.by(config, Place())
    how, count = asked.recipe, len(asked.mine)
    share = "" if asked.parts == 1 else f" (part {asked.part + 1} of {asked.parts})"
    objective = asked.card.get("objective", "an unstated objective")
    steps = [
        f"look at {len(asked.source)} masks in {config.data}",
        f"draw {count} images of {asked.size}×{asked.size}{share}{', each mask varied first' * config.augment}, "
        f"with the {asked.card['backbone']} backbone in {config.model}, trained for {objective}",
        f"by {how.scheduler} in {how.steps} steps, guidance {how.guidance:g}, η {how.eta:g}, seed {how.seed}, "
        f"{even_batch(count, config.batch)} at once, in {how.precision} on {pick_device(config.device)}",
    ]
    if config.filter.judge is not None:
        steps.append(f"keep those in which {config.filter.judge} finds the lesion with Dice {config.filter.least:g}")
    return [*steps, f"write images, masks, provenance and dataset.json to {config.out}; keep what is there and sound"]


def run(config: SampleConfig) -> int:
    """Make what is missing of the set; the last process to end writes the index."""
    with processes() as place:
        asked = Asked.by(config, place)
        device = place.device(pick_device(config.device))
        judge = None if config.filter.judge is None else Judge.load(config.filter.judge, device)
        out = OutFolder(config.out)
        sample(asked, out, device, judge, show=place.first)
        if place.world > 1:
            dist.barrier()
        if place.first:
            _conclude(asked, out, judge)
    return 0


def sample(asked: Asked, out: OutFolder, device: torch.device, judge: Judge | None, *, show: bool = True) -> None:
    """This process's images, and what the judge finds in them."""
    config, mine = asked.config, asked.mine
    found = survey(asked.source, asked.size, workers=config.workers, progress=show)
    prompts = Prompts.of(asked.card, config.prompt, highest=found.highest)
    masks = Masks.of(asked.source, asked.size, found, config)
    if show:
        for line in found.remarks(asked.size):
            note(line)
    manifest = asked.manifest(found, device)
    out.check(manifest)
    missing = out.missing(mine, workers=config.workers, progress=show)
    engine = asked.engine(device) if missing else None  # before a folder is made: weights may be damaged
    out.claim(manifest)
    with Lock(_locked(out, asked)):
        if engine is not None:
            out.reopen()
            drawing = Drawing(engine, masks, prompts, asked.origin, out, workers=config.workers)
            drawing.run(missing, already=len(mine) - len(missing), show=show)
        if judge is not None:
            judge_all(out, mine, judge, batch=config.batch, show=show)


def _locked(out: OutFolder, asked: Asked) -> Path:
    """The folder whose lock keeps two processes from making the same part."""
    if asked.parts == 1:
        return out.folder
    folder = out.folder / PARTS / f"{asked.part + 1}-of-{asked.parts}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _conclude(asked: Asked, out: OutFolder, judge: Judge | None) -> None:
    """Write the index and say what there is now."""
    head = finish(out, asked.config, asked.jobs, asked.origin, judge, facts=facts_of(asked.source))
    if head is None:
        say(f"{len(asked.mine)} images are done; whichever part ends last writes {shown(out.folder)}/dataset.json")
        return
    if head["filter"] is not None:
        say(in_words(head["filter"]))
    counts = head["counts"]
    say(f"{counts['pairs']} synthetic images, {counts['empty_masks']} with an empty mask: {shown(out.folder)}")
