"""Predict files of any kind: pictures stream in batches, volumes and large or many-paged TIFFs go one by one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from laworder.data.sources.images import shown
from laworder.errors import UserError
from laworder.runs.files import WriteError
from laworder.segmentation.dicoms import Series, predict_series
from laworder.segmentation.inputs import is_nifti, is_tiff
from laworder.segmentation.pictures import Job, Options, Outcome, Pictures
from laworder.segmentation.predictor import Predictor
from laworder.segmentation.streaming import stream
from laworder.segmentation.tiffs import is_stack_or_large, predict_tiff
from laworder.segmentation.volumes import VolumeOptions, predict_nifti


@dataclass(frozen=True)
class Work:
    """Everything `predict` needs beside the files."""

    predictor: Predictor
    options: Options
    volumes: VolumeOptions
    workers: int
    model: str = ""
    """What the user called the model; DICOM results state it."""


def predict(jobs: Sequence[Job], work: Work) -> Iterator[Outcome]:
    """One outcome a file, as they are done. A damaged file is an outcome with an error; a full disk raises."""
    alone = [(job, way) for job in jobs if (way := _own_way(job, work)) is not None]
    single = {id(job) for job, _ in alone}
    stages = Pictures(work.predictor, work.options)
    yield from stream(
        [job for job in jobs if id(job) not in single],
        read=stages.read,
        infer=stages.infer,
        write=stages.write,
        refuse=_refused,
        batch=work.options.batch,
        workers=work.workers,
    )
    for job, way in alone:
        try:
            yield way()
        except WriteError:
            raise
        except UserError as error:
            yield _refused(job, error)


def _own_way(job: Job, work: Work) -> Callable[[], Outcome] | None:
    """How a file is predicted that is not one picture of ordinary size."""
    if isinstance(job, Series):
        return partial(
            predict_series,
            job,
            predictor=work.predictor,
            options=work.options,
            intensity=work.volumes.intensity,
            model=work.model,
        )
    if is_nifti(job.source):
        return partial(predict_nifti, job, predictor=work.predictor, options=work.options, volume=work.volumes)
    if is_tiff(job.source) and is_stack_or_large(job.source):
        intensity = work.volumes.intensity
        return partial(predict_tiff, job, predictor=work.predictor, options=work.options, intensity=intensity)
    return None


def _refused(job: Job, error: UserError) -> Outcome:
    return Outcome(job.source, error=str(error))


def table(outcomes: Sequence[Outcome], source: Path, out: Path) -> str:
    """predictions.csv: one line a file, in the order of their names."""
    root = source if source.is_dir() else source.parent
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "mask", "pictures", "lesion_share", "highest_probability", "error"])
    for o in sorted(outcomes, key=lambda o: o.source):
        file = shown(o.source.relative_to(root))
        if o.target is None:
            writer.writerow([file, "", 0, "", "", o.error])
        else:
            mask = shown(o.target.relative_to(out))
            writer.writerow([file, mask, o.pictures, f"{o.lesion:.6f}", f"{o.highest:.6f}", o.error or ""])
    return text.getvalue()
