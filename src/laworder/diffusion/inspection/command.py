"""`laworder synth inspect`: what a model was trained on, with which objective, how it did, and what it draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from laworder.config import build, flatten, option
from laworder.console import note, say
from laworder.data.opening import open_source
from laworder.data.pairs import Part, Source
from laworder.diffusion.inspection.facts import Model
from laworder.diffusion.inspection.sheets import Row, add, as_picture, draw, rows_of, spread_by_size
from laworder.diffusion.looks import write_png
from laworder.diffusion.sampling.masks import open_masks, survey
from laworder.diffusion.sampling.settings import Recipe, SampleConfig, recipe
from laworder.diffusion.score import as_text
from laworder.diffusion.settings import TrainConfig
from laworder.errors import UserError
from laworder.report import Page, picture_uri
from laworder.segmentation.parts import parts_of
from laworder.segmentation.train import pick_device

SHEET, PAGE = "sheet.png", "inspection.html"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Say what a model was trained on, with which objective and how it did, check its weights, and draw a sheet of
    masks, real images, synthetic images and overlays: the paper's qualitative figures. Other models may stand beside
    it, drawn for the same masks from the same noise."""

    model: Path = option(meaning="run of `synth train`, or the model folder in it", positional=True)
    beside: tuple[Path, ...] = option((), "other models to draw beside it, separated by commas")
    data: str | None = option(None, "masks to draw for; none: the held-out ones of its own data, where it is at hand")
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    images: int = option(6, "masks on the sheet, from the smallest lesion to the largest; 0: no sheet", minimum=0)
    steps: int = option(50, "sampling steps", minimum=1)
    guidance: float | None = option(None, "none: the model's own, 10 for sd15", minimum=0)
    seed: int = option(0, "of the noise, as in `synth sample`", minimum=0)
    out: Path = option(Path("inspection"), f"folder for {PAGE} and {SHEET}")
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    models = [config.model, *config.beside]
    steps = [f"read what {' and '.join(map(str, models))} say of themselves, and check their weights"]
    if config.images:
        where = config.data or "the held-out masks of its own data"
        steps.append(f"draw {config.images} masks of {where} in {config.steps} steps on {pick_device(config.device)}")
    return [*steps, f"write {PAGE}{f' and {SHEET}' * bool(config.images)} to {config.out}"]


def run(config: Config) -> int:
    """Tell, draw and write."""
    models = [Model.at(path) for path in (config.model, *config.beside)]
    first = models[0]
    for name, value in first.facts():
        say(f"{name + ':':<28}{value}")
    for name, value in first.metrics().items():
        say(f"{name + ':':<28}{as_text(value, 4)}")
    rows = _sheet(config, models)
    config.out.mkdir(parents=True, exist_ok=True)
    if rows:
        write_png(config.out / SHEET, as_picture(rows))
    _page(models, rows).write(config.out / PAGE)
    say(f"page: {config.out / PAGE}{f'; sheet: {config.out / SHEET}' * bool(rows)}")
    return 0


def _sheet(config: Config, models: Sequence[Model]) -> list[Row]:
    """Rows of pictures; empty where there is nothing to draw, or nothing to draw for."""
    drawing = [model for model in models if not model.is_prior]
    if not config.images or not drawing:
        return []
    source = _masks(config, models[0])
    if source is None:
        return []
    size = drawing[0].card["size"]
    chosen = spread_by_size(survey(source, size), config.images)
    if not chosen:
        raise UserError("data: every mask is empty; there is no lesion to draw")
    rows = rows_of(source, chosen, size)
    for model in drawing:
        pictures = draw(model, _recipe(config, model), source, chosen, pick_device(config.device))
        add(rows, pictures, source, chosen, model.name)
    return rows


def _recipe(config: Config, model: Model) -> Recipe:
    asked = SampleConfig(model=model.path, data="", seed=config.seed, steps=config.steps, guidance=config.guidance)
    return recipe(asked, model.card)


def _masks(config: Config, model: Model) -> Source | None:
    """Those that were asked for, else those that training held out."""
    if config.data is not None:
        wanted = SampleConfig(model=model.path, data=config.data, masks=config.masks)
        return open_masks(wanted, model.card["size"])
    if model.manifest is None:
        note("no sheet: this model lies in no run, so give --data to say for which masks to draw")
        return None
    settings = build(TrainConfig, flatten(model.manifest.config))
    try:
        source = open_source(settings.data, masks=settings.masks, size=settings.side, phantom=settings.phantom)
        return Part(source, parts_of(settings, source).indices("val", source.names))
    except UserError as error:
        note(f"no sheet: the data of this run is not at hand ({str(error).splitlines()[0]}); give --data")
        return None


def _page(models: Sequence[Model], rows: Sequence[Row]) -> Page:
    first = models[0]
    data = first.card.get("data", {})
    summary = [
        f"A {first.card['backbone']} model of {first.card['size']}×{first.card['size']} images, trained as "
        f"{first.name} on {data.get('pairs', '?')} pairs of {data.get('source', 'data that is not stated')}.",
        "What it draws is synthetic, not a patient.",
    ]
    page = Page(title=f"Inspection: {first.name}", summary=summary)
    page.section("What it is")
    for model in models:
        caption = f"What {model.path} says of itself; the hashes of its weights were compared."
        page.table(["fact", "value"], model.facts(), caption=caption)
    if any(model.metrics() for model in models):
        page.section("How it did")
        listed = [[m.name, name, as_text(value, 4)] for m in models for name, value in m.metrics().items()]
        page.table(["model", "metric", "value"], listed, caption="Of the kept weights, on the fixed validation masks.")
    if rows:
        page.section("What it draws")
        tiles = [[(picture_uri(tile), f"{row.name}: {name}") for name, tile in row.tiles] for row in rows]
        page.sheet(
            tiles,
            names=[name for name, _ in rows[0].tiles],
            caption="From the smallest lesion to the largest; every model drew for the same masks from the same noise.",
        )
    page.section("Records")
    for model in models:
        page.record(f"laworder.json of {model.path}", model.card)
        if model.manifest is not None:
            page.record(f"manifest of {model.path}", asdict(model.manifest))
    return page
