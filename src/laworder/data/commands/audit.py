"""`laworder data audit`: what would ruin a study, before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from laworder.config import option, to_dict
from laworder.console import note, say
from laworder.data.audit.autoencoder import open_autoencoder
from laworder.data.audit.folders import Opened, join, labels_of, open_splits, open_whole
from laworder.data.audit.page import make_page
from laworder.data.audit.parts import by_split_file
from laworder.data.audit.record import as_dict, as_json
from laworder.data.audit.study import FACTOR, SIZES, VAE_IMAGES, audit
from laworder.data.audit.table import as_text
from laworder.data.audit.tables import tables
from laworder.data.audit.weights import W_MAX
from laworder.data.sources.masks import MaskRule
from laworder.errors import UserError
from laworder.runs import atomic_write
from laworder.runs.manifest import now, versions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Look for identical and near-identical images within and across splits, odd masks, masks that do not belong to
    their image, lesions that a resize swallows, and for what LAW will do with these masks. Prints tables and writes a
    page with pictures (patients' images: mind where it goes)."""

    folder: Path = option(meaning="images and masks, one split or several below it; or FOLDER:POOL", positional=True)
    other: tuple[Path, ...] = option((), "further folders, each a split or several: a test set elsewhere")
    split: Path | None = option(None, "split file of `laworder data split`: its parts are the splits")
    fold: int = option(0, "which split of the file, where it holds several", minimum=0)
    out: Path = option(Path("audit.html"), "the page; its numbers go beside it as .json")
    strict: bool = option(False, "exit with 1 where there are errors")
    group: str = option("image", "what must not cross a split: image, folder, or a pattern with the patient in ( )")
    index: bool = option(False, "mask values are class indices")
    masks_only: bool = option(False, "the folder holds masks and nothing else")
    sizes: tuple[int, ...] = option(SIZES, "sides that training will resize to", unit="pixels", minimum=8)
    factor: int = option(FACTOR, "side of an image over that of its latents", minimum=1)
    w_max: float = option(W_MAX, "LAW's upper clamp", minimum=1)
    mirrored: bool = option(True, "also look for flipped and turned copies")
    vae: Path | None = option(None, "folder of an autoencoder to put lesions through (diffusers, or TAEF2)")
    vae_images: int = option(VAE_IMAGES, "images of each split that go through it", minimum=1)
    seed: int = option(0, "of the samples", minimum=0)


def plan(config: Config) -> list[str]:
    folders = ", ".join(map(str, (config.folder, *config.other)))
    sizes = ", ".join(map(str, config.sizes))
    parts = f", in the parts of {config.split}" if config.split is not None else ""
    steps = [
        f"read every pair in {folders} once{parts}",
        "compare images within and across splits, and masks with images",
        f"follow every lesion to {sizes} pixels and to latents {config.factor} times smaller",
    ]
    if config.vae is not None:
        steps.append(f"put {config.vae_images} images of each split through {config.vae}")
    return [*steps, f"write {config.out} and {config.out.with_suffix('.json')}"]


def run(config: Config) -> int:
    opened = _open(config)
    vae = None if config.vae is None else open_autoencoder(config.vae)
    sources = {name: one.source for name, one in opened.items()}
    result = audit(
        sources,
        sizes=config.sizes,
        factor=config.factor,
        w_max=config.w_max,
        mirrored=config.mirrored,
        problems={name: one.problems for name, one in opened.items()},
        vae=vae,
        vae_images=config.vae_images,
        seed=config.seed,
    )
    for table in tables(result):
        say(as_text(table) + "\n")
    for finding in result.findings:
        say(f"{finding.severity}: {finding.text}")
    record = {"config": to_dict(config), "versions": versions(), "made": now()}
    page = make_page(result, sources, vae=vae)
    page.section("How this was made")
    page.record("settings", record)
    config.out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(config.out, page.html())
    atomic_write(config.out.with_suffix(".json"), as_json({**record, **as_dict(result)}))
    note(f"the page: {config.out.resolve()}")
    return 1 if config.strict and result.errors else 0


def _open(config: Config) -> dict[str, Opened]:
    rule = MaskRule(index=config.index)
    if config.out.suffix != ".html":
        raise UserError(f"out: the page is an .html file, not {config.out}")
    given = (config.folder, *config.other)
    places = [folder.resolve() for folder in given]
    twice = next((folder for folder, place in zip(given, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice")
    folders: dict[str, dict[str, Opened]] = {}
    for label, folder in zip(labels_of(given), given, strict=True):
        if config.split is not None and folder == config.folder:
            whole = open_whole(folder, rule=rule, group=config.group, masks_only=config.masks_only)
            folders[label] = by_split_file(whole, config.split, config.fold)
        else:
            folders[label] = open_splits(folder, rule=rule, group=config.group, masks_only=config.masks_only)
    return join(folders)
