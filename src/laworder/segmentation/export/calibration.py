"""Images to measure ranges on, others to measure Dice on, and the comparison that an 8-bit file must pass."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch

from laworder.data.load import Arrays, load_arrays
from laworder.data.opening import Phantom, open_source
from laworder.data.pairs import Source
from laworder.errors import UserError
from laworder.metrics.overlap import count
from laworder.order.base import Segmenter
from laworder.runs.randomness import permutation
from laworder.segmentation.export.agreement import LARGEST_DROP, expected
from laworder.segmentation.export.runtimes import Runtime
from laworder.segmentation.loading import MANIFEST, run_settings
from laworder.segmentation.parts import parts_of

BATCH = 16


class Sets(NamedTuple):
    """Pairs whose ranges are measured, and pairs whose Dice is."""

    calibration: Arrays
    validation: Arrays


class Asked(Protocol):
    """What the user said of the data."""

    @property
    def model(self) -> str: ...
    @property
    def data(self) -> str | None: ...
    @property
    def masks(self) -> Path | None: ...
    @property
    def calibration(self) -> int: ...
    @property
    def phantom(self) -> Phantom: ...


def calibration_sets(asked: Asked, model: Segmenter) -> Sets:
    """Of a run: its training and its held-out pairs. Of given data: `calibration` pairs drawn from it, and the rest."""
    size, channels = model.preprocessing.size, model.in_channels
    if asked.data is None:
        source, pool, rest = _of_run(Path(asked.model).expanduser(), size)
    else:
        source = open_source(asked.data, masks=asked.masks, size=size, phantom=asked.phantom)
        order = permutation(0, 0, len(source)).tolist()
        pool, rest = order[: asked.calibration], order[asked.calibration :]
    if not rest:
        raise UserError(
            f"calibration: {asked.data} holds {len(source)} pairs; {asked.calibration} for calibration leave none to "
            "compare Dice on; lower it"
        )
    drawn = [pool[i] for i in permutation(0, 0, len(pool)).tolist()[: asked.calibration]]
    return Sets(load_arrays(source, size, channels, drawn), load_arrays(source, size, channels, sorted(rest)))


def _of_run(folder: Path, size: int) -> tuple[Source, list[int], list[int]]:
    if not (folder / MANIFEST).is_file():
        raise UserError(f"data: int8 is calibrated on images, and {folder} is no run that knows its own; give --data")
    trained = run_settings(folder)
    source = open_source(trained.data, masks=trained.masks, size=size, phantom=trained.phantom)
    parts = parts_of(trained, source)
    return source, list(parts.indices("train", source.names)), list(parts.indices("val", source.names))


def check_dice(
    runtime: Runtime, model: Segmenter, sets: Sets, *, side: int | None
) -> tuple[dict[str, float | int], list[str]]:
    """Dice of the model and of the file on the validation pairs, as numbers and in words; UserError where it drops."""
    images = sets.validation.images.permute(0, 2, 3, 1).contiguous().numpy()
    true = sets.validation.masks[:, 0] > 0
    starts = range(0, len(images), BATCH)
    ours = np.concatenate([expected(model, images[k : k + BATCH], side=side, dtype=torch.float32).mask for k in starts])
    theirs = np.concatenate([runtime(images[k : k + BATCH]).mask for k in starts])
    before, after = (float(count(torch.from_numpy(m > 0), true).dice().mean()) for m in (ours, theirs))
    words = (
        f"Dice on {len(images)} validation images: {100 * before:.2f} in float32, {100 * after:.2f} in 8 bits, "
        f"calibrated on {len(sets.calibration.images)} others"
    )
    if before - after > LARGEST_DROP:
        raise UserError(
            f"{words}: it drops by more than {100 * LARGEST_DROP:g} points; nothing was written. Calibrate on more "
            "images, of the kind that will come"
        )
    numbers = {
        "images": len(images),
        "calibration_images": len(sets.calibration.images),
        "float32": before,
        "int8": after,
    }
    return numbers, [words]
