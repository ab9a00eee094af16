"""`laworder seg predict`: masks for pictures, folders, volumes and stacks, in the input's own format and geometry."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from laworder.config import option, to_dict
from laworder.console import note, say
from laworder.data.sources.volumes import WINDOWS, parse_window
from laworder.errors import UserError
from laworder.runs import Manifest, Progress, atomic_write
from laworder.runs.manifest import command_line, describe_device, jsonable
from laworder.segmentation.inputs import find_jobs
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.pictures import Options, Outcome
from laworder.segmentation.predict import Work, predict, table
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.train import pick_device
from laworder.segmentation.volumes import VolumeOptions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Predict masks for a picture, a folder of pictures, a NIfTI volume, a DICOM series, or a multi-page or very large
    TIFF. A damaged file in a folder is reported and skipped; the exit code is then 1."""

    model: str = option(meaning="run folder, folder of save_pretrained, shipped model or Hub id", positional=True)
    input: Path = option(meaning="file, or folder whose files and subfolders are predicted", positional=True)
    out: Path = option(Path("predictions"), "folder for masks, predictions.csv and predictions.json")
    probabilities: bool = option(False, "write probability maps too: 16-bit, 65535 is 1 (NIfTI: float32)")
    overlays: bool = option(False, "write pictures with the predicted outline too (single pictures only)")
    threshold: float | None = option(
        None, "probability above which a pixel is lesion; none: the model's own", minimum=0, maximum=1
    )
    tta: bool = option(False, "average over the four mirror images")
    mode: Literal["auto", "resize", "window"] = option(
        "auto", "shrink each picture to the model's size, or slide a window over it; auto: window only TIFFs over 67 MP"
    )
    window: int | None = option(
        None, "side of the sliding window; none: the model's training size", unit="pixels", minimum=32
    )
    overlap: float = option(0.25, "least overlap of neighbouring windows, share of their side", minimum=0, maximum=0.9)
    plane: Literal["auto", "axial", "coronal", "sagittal"] = option(
        "auto", "slices of a NIfTI volume; auto: across its coarsest spacing"
    )
    intensity: str | None = option(
        None,
        f"values of volumes and deep TIFFs that become black and white: LOW,HIGH or {', '.join(WINDOWS)}; none: each "
        "file's own range. Give what the training data was prepared with",
    )
    skip_existing: bool = option(False, "leave out files whose mask is there already")
    batch: int = option(16, "pictures or windows at a time", minimum=1)
    workers: int | None = option(None, "threads that decode, and as many that write; none: one a core", minimum=1)
    device: str = option("auto", "cpu, cuda, cuda:1 … or auto")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    more = [
        name for name, wanted in (("probability maps", config.probabilities), ("overlays", config.overlays)) if wanted
    ]
    return [
        f"load {config.model} on {pick_device(config.device)}",
        f"predict {config.input} ({config.mode})",
        f"write {' and '.join(['masks', *more])}, predictions.csv and predictions.json to {config.out}",
    ]


def run(config: Config) -> int:
    """Predict everything; 1 where a file could not be read."""
    intensity = None if config.intensity is None else parse_window(config.intensity)
    if config.out.resolve() == (config.input if config.input.is_dir() else config.input.parent).resolve():
        raise UserError(f"out: {config.out} is where the input lies, which would be overwritten; choose another folder")
    jobs, passed = find_jobs(config.input, config.out)
    if passed:
        note(f"{config.input}: passed over, being neither picture nor volume: {passed} file{'s' * (passed > 1)}")
    if config.skip_existing:
        jobs = [job for job in jobs if not job.target.is_file()]
    device = pick_device(config.device)
    predictor = Predictor(load_segmenter(config.model, device=device), device, config.tta)
    config.out.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    with Progress(total=len(jobs), desc="predicting", unit="file") as bar:
        for outcome in predict(jobs, _work(config, predictor, intensity)):
            outcomes.append(outcome)
            bar.update()
            if outcome.error is not None:
                note(outcome.error)
    _record(config, outcomes, predictor)
    return _tell(config, outcomes)


def _tell(config: Config, outcomes: list[Outcome]) -> int:
    unread = sum(o.target is None for o in outcomes)
    torn = sum(o.target is not None and o.error is not None for o in outcomes)
    words = f"{len(outcomes) - unread} of {len(outcomes)} predicted; {unread} could not be read"
    if torn:
        words += f"; {torn} series without slices that could not be read"
    say(f"{words}; masks: {config.out}")
    return 1 if unread or torn else 0


def _work(config: Config, predictor: Predictor, intensity: tuple[float, float] | None) -> Work:
    own = predictor.model.preprocessing.threshold
    options = Options(
        threshold=own if config.threshold is None else config.threshold,
        probabilities=config.probabilities,
        overlays=config.overlays,
        window=(config.window or predictor.size) if config.mode == "window" else None,
        large_window=None if config.mode == "resize" else (config.window or predictor.size),
        overlap=config.overlap,
        batch=config.batch,
    )
    volumes = VolumeOptions(plane=config.plane, intensity=intensity)
    return Work(predictor, options, volumes, config.workers or min(os.cpu_count() or 1, 16), config.model)


def _record(config: Config, outcomes: list[Outcome], predictor: Predictor) -> None:
    manifest = Manifest(
        kind="seg predict",
        command=command_line(),
        config=jsonable(to_dict(config)),
        seeds={},
        data={},
        device=describe_device(predictor.device),
        outcome="done",
    )
    about = {"preprocessing": asdict(predictor.model.preprocessing), "manifest": asdict(manifest)}
    note_of_use = "Not a medical device: these masks must not guide diagnosis or treatment."
    atomic_write(config.out / "predictions.csv", table(outcomes, config.input, config.out))
    atomic_write(config.out / "predictions.json", json.dumps({"note": note_of_use, **about}, indent=1) + "\n")
