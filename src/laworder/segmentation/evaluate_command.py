"""`laworder seg evaluate`: how good is a segmenter on pairs of images and masks, and is it better than another?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch.nn import functional as F

from laworder.config import group, option, to_dict
from laworder.console import note, say
from laworder.data.load import Arrays, load_arrays, source_hash
from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import Source
from laworder.errors import UserError
from laworder.metrics.paired import compare
from laworder.metrics.surface import TOLERANCE
from laworder.runs import Manifest, atomic_write, read_manifest
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.evaluate_report import evaluation_page
from laworder.segmentation.judge import MEASURES, Judgement, json_text, judge, subsets_of
from laworder.segmentation.loading import MANIFEST, load_segmenter, run_settings
from laworder.segmentation.parts import parts_of
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.train import pick_device


@dataclass(frozen=True, kw_only=True)
class Config:
    """Judge a segmenter on pairs of images and masks: overlap, outlines, calibration, per image, per subset and by
    lesion size, with intervals; against another model, with paired tests. Writes CSV, JSON and an HTML report."""

    model: str = option(meaning="run folder, folder of save_pretrained, shipped model or Hub id", positional=True)
    data: str = option(meaning="folder of images and masks, or the word phantom", positional=True)
    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    out: Path = option(Path("evaluation"), "folder for evaluation.json, images.csv and report.html")
    against: str | None = option(None, "a second model, compared with the first image by image")
    part: Literal["all", "held-out"] = option("all", "held-out: only the validation pairs of the run that MODEL is")
    subset: str = option(
        "folder", "what forms subsets: folder, group, none, or a regular expression with parentheses around the part"
    )
    size: int | None = option(
        None, "side at which is judged; none: what MODEL was trained at", unit="pixels", minimum=32
    )
    threshold: float | None = option(
        None, "probability above which a pixel is lesion; none: each model's own", minimum=0, maximum=1
    )
    tolerance: float = option(TOLERANCE, "how far an outline may be off", unit="pixels", minimum=0)
    tta: bool = option(False, "average over the four mirror images")
    resamples: int = option(2000, "bootstrap resamples of each interval", minimum=100)
    seed: int = option(0, "of the bootstrap and the permutations", minimum=0)
    batch: int = option(16, "images at a time", minimum=1)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")
    phantom: Phantom = group(Phantom, "the drawn data, where data is phantom")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    rival = [] if config.against is None else [f"judge {config.against} on the same pairs, and test the difference"]
    return [
        f"read the pairs of {config.data} ({config.part}), in subsets by {config.subset}",
        f"judge {config.model} on {pick_device(config.device)}",
        *rival,
        f"write evaluation.json, images.csv and report.html to {config.out}",
    ]


def run(config: Config) -> int:
    """Judge, write, and say the result in a few lines."""
    device = pick_device(config.device)
    models = {"model": Predictor(load_segmenter(config.model, device=device), device, config.tta)}
    if config.against is not None:
        models["against"] = Predictor(load_segmenter(config.against, device=device), device, config.tta)
    size = config.size or models["model"].size
    source = open_source(config.data, masks=config.masks, size=size, phantom=config.phantom)
    digest = source_hash(source)
    indices = _part(config, source, digest)
    subsets = subsets_of(source, config.subset)
    found = {
        name: _judged(config, predictor, source, indices, [subsets[i] for i in indices], size)
        for name, predictor in models.items()
    }
    judged = {name: judgement for name, (judgement, _) in found.items()}
    manifest = Manifest(
        kind="seg evaluate",
        command=command_line(),
        config=jsonable(to_dict(config)),
        seeds={"seed": config.seed},
        data={"pairs": digest},
        device=describe_device(device),
        outcome="done",
    )
    result = results(config, judged, size=size, manifest=manifest)
    _write(config, judged, result, shown=found["model"][1])
    _tell(config, result)
    return 0


def _part(config: Config, source: Source, digest: str) -> list[int]:
    """Positions of the pairs to judge; says so where a run would be judged on what it was trained on."""
    folder = Path(config.model).expanduser()
    is_run = (folder / MANIFEST).is_file()
    if config.part == "held-out":
        if not is_run:
            raise UserError(f"part: only a run folder knows what it held out, and {config.model!r} is none; use all")
        trained = run_settings(folder)
        if read_manifest(folder).data.get("pairs") != digest:
            raise UserError(f"part: {config.data} does not hold the pairs that {config.model} was trained on; use all")
        parts = parts_of(trained, source)
        return list(parts.indices("val", source.names))
    if is_run and read_manifest(folder).data.get("pairs") == digest:
        note(f"mind: {config.model} was trained on most of these pairs; --part held-out judges the others")
    return list(range(len(source)))


def _judged(
    config: Config, predictor: Predictor, source: Source, indices: list[int], subsets: list[str], size: int
) -> tuple[Judgement, Arrays]:
    """One model's scores, at `size`, whatever size the model itself was trained at; and what it saw."""
    own = config.size or predictor.size
    pairs = load_arrays(source, own, predictor.channels, indices)
    probability = predictor.lesion(pairs, batch=config.batch)
    masks = pairs.masks
    if own != size:
        probability = F.interpolate(probability[:, None], (size, size), mode="bilinear", align_corners=False)[:, 0]
        masks = load_arrays(source, size, 1, indices).masks
    threshold = predictor.model.preprocessing.threshold if config.threshold is None else config.threshold
    judged = judge(
        probability, masks, names=pairs.names, subsets=subsets, threshold=threshold, tolerance=config.tolerance
    )
    return judged, pairs


def results(config: Config, judged: dict[str, Judgement], *, size: int, manifest: Manifest) -> dict[str, Any]:
    """The whole of evaluation.json."""
    result: dict[str, Any] = {"format": 1, "size": size, "tolerance": config.tolerance}
    for name, judgement in judged.items():
        typed = config.model if name == "model" else config.against
        result[name] = {"source": typed, **judgement.summary(resamples=config.resamples, seed=config.seed)}
    if "against" in judged:
        result["paired"] = paired(judged["model"], judged["against"], seed=config.seed)
    return {**result, "manifest": asdict(manifest)}


def paired(first: Judgement, second: Judgement, *, seed: int) -> dict[str, Any]:
    """Each measure compared image by image, over the images where both have a number."""
    found: dict[str, Any] = {}
    for measure in MEASURES:
        a, b = first.scores[measure], second.scores[measure]
        both = a.isfinite() & b.isfinite()
        if int(both.sum()) > 1:
            found[measure] = asdict(compare(a[both], b[both], seed=seed))
    return found


def _write(config: Config, judged: dict[str, Judgement], result: dict[str, Any], *, shown: Arrays) -> None:
    config.out.mkdir(parents=True, exist_ok=True)
    atomic_write(config.out / "images.csv", judged["model"].csv())
    if "against" in judged:
        atomic_write(config.out / "images-against.csv", judged["against"].csv())
    atomic_write(config.out / "evaluation.json", json_text(result))
    atomic_write(config.out / "report.html", evaluation_page(result, judged["model"], shown).html())


def _tell(config: Config, result: dict[str, Any]) -> None:
    for name in ("model", "against"):
        if name in result:
            found = result[name]
            low, high = found["interval_95"].get("dice", (math.nan, math.nan))
            say(
                f"{found['source']}: Dice {found['mean']['dice']:.3f} (95 % interval {low:.3f} to {high:.3f}), "
                f"IoU {found['mean']['iou']:.3f}, boundary F1 {found['mean']['boundary_f1']:.3f}, "
                f"HD95 {found['mean']['hd95']:.1f} px, on {found['images']} images"
            )
    if "dice" in result.get("paired", {}):
        d = result["paired"]["dice"]
        low, high = d["interval_95"]
        say(
            f"Dice differs by {d['difference']:+.3f} (95 % interval {low:+.3f} to {high:+.3f}); "
            f"p = {d['permutation_p']:.2g} (permutation), {d['wilcoxon_p']:.2g} (Wilcoxon)"
        )
    say(f"report: {config.out / 'report.html'}")
