"""The demo's runs: which commands, with which settings, on what the others wrote."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from laworder.diffusion.backbones.tiny import FACTOR
from laworder.paper.divide import HELD_OUT, TRAIN
from laworder.paper.jobs import Job, Output
from laworder.paper.mixing import DATA, SPLIT

SIZE = 64
OBJECTIVES = {"uniform": "plain loss", "law": "LAW"}
DIFFUSION: dict[str, Any] = {
    "backbone": "tiny",
    "size": SIZE,
    "channels": 1,
    "batch": 12,
    "save_every": 100,
    "watch.images": 6,
    "watch.validation": 6,
    "watch.steps": 8,
    "optimiser.lr": 2e-3,
    "optimiser.schedule": "cosine",
    "optimiser.ema": 0.98,
    "log": "none",
}
"""A rate and an average for a training of minutes; the presets are for longer ones."""
SEGMENTER: dict[str, Any] = {
    "model": "order_01",
    "size": SIZE,
    "channels": 1,
    "batch": 8,
    "optimiser.name": "adamw",
    "optimiser.lr": 2e-2,
    "optimiser.floor": 1e-4,
    "log": "none",
}


@dataclass(frozen=True)
class Story:
    """Every run, by the part that it plays. Both diffusion models and both segmenters differ in nothing else."""

    pairs: Job
    uniform: Job
    law: Job
    audit: Job
    drawn_uniform: Job
    drawn_law: Job
    alone: Job
    mixed: Job
    judge: Job
    helped: Job
    found_uniform: Job
    found_law: Job
    ceiling: Job
    help: Job

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them, in an order in which they can be done; the longest first where there is a choice."""
        return tuple(getattr(self, entry.name) for entry in fields(self))


def story(*, images: int, steps: int, epochs: int, seed: int) -> Story:
    """The runs of a demo with so many pairs, updates and epochs."""
    drawn = {"data": "phantom", "phantom.modality": "mr", "phantom.count": images, "phantom.seed": seed}
    pairs = Job("divide", "the drawn pairs", {**drawn, "size": SIZE, "held_out": 0.2, "seed": seed})
    train, held_out = Output(pairs, pool=TRAIN), Output(pairs, pool=HELD_OUT)
    models = {name: _generator(name, train, steps, seed) for name in OBJECTIVES}
    sets = {name: _images(name, models[name], train, seed) for name in OBJECTIVES}
    alone = Job("mix", "real pairs", {"data": train, "seed": seed})
    mixed = Job("mix", "real and synthetic pairs", {"data": train, "synthetic": Output(sets["law"]), "seed": seed})
    judge = _segmenter("ORDER on real pairs", alone, epochs, seed)
    # Twice the pairs, half the epochs: as many updates.
    helped = _segmenter("ORDER on real and synthetic pairs", mixed, epochs // 2, seed)
    return Story(
        pairs=pairs,
        **models,
        audit=Job(
            "data audit", "audit", {"folder": Output(pairs), "out": "audit.html", "sizes": str(SIZE), "factor": FACTOR}
        ),
        **{f"drawn_{name}": job for name, job in sets.items()},
        alone=alone,
        mixed=mixed,
        judge=judge,
        helped=helped,
        **{f"found_{name}": _scored(f"the judge on {name}", judge, Output(job)) for name, job in sets.items()},
        ceiling=_scored("the judge on held-out real pairs", judge, held_out),
        help=_scored("the helped one on held-out real pairs", helped, held_out),
    )


def _generator(objective: str, train: Output, steps: int, seed: int) -> Job:
    settings = {"data": train, "objective": objective, "steps": steps, "watch.every": steps, "seed": seed}
    return Job("synth train", f"diffusion under {objective}", {**DIFFUSION, **settings, **_warmup(20, steps)})


def _images(objective: str, model: Job, masks: Output, seed: int) -> Job:
    settings = {"model": Output(model), "data": masks, "steps": 10, "seed": seed}
    return Job("synth sample", f"images under {objective}", settings)


def _segmenter(label: str, data: Job, epochs: int, seed: int) -> Job:
    settings = {"data": Output(data, DATA), "split": Output(data, SPLIT), "seed": seed, "epochs": epochs}
    settings |= {"validate_every": max(1, epochs // 10), **_warmup(40, 2 * epochs)}
    return Job("seg train", label, {**SEGMENTER, **settings})


def _warmup(wanted: int, steps: int) -> dict[str, int]:
    """A training of a few steps has no room for more than a few of warm-up."""
    return {"optimiser.warmup": min(wanted, steps // 4)}


def _scored(label: str, model: Job, data: Output) -> Job:
    return Job("seg evaluate", label, {"model": Output(model), "data": data, "subset": "none", "resamples": 500})
