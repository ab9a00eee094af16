"""Images to measure ranges on, others to measure Dice on, and the comparison that an 8-bit file must pass."""

from __future__ import annotations

from dataclasses import dataclass
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
from laworder.segmentation.export.quantise import LEVELS, write_int8
from laworder.segmentation.export.runtimes import Runtime, of_onnx
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


@dataclass(frozen=True)
class DiceCheck:
    """Dice of lesion on the validation pairs, of the model and of its 8-bit file."""

    images: int
    calibration_images: int
    float32: float
    int8: float
    left_in_float32: str

    @property
    def holds(self) -> bool:
        return self.float32 - self.int8 <= LARGEST_DROP

    def words(self) -> str:
        return (
            f"Dice on {self.images} validation images: {100 * self.float32:.2f} in float32, {100 * self.int8:.2f} in 8 "
            f"bits, calibrated on {self.calibration_images} others; convolutions left in float32: "
            f"{self.left_in_float32}"
        )


def dice_check(runtime: Runtime, model: Segmenter, sets: Sets, *, side: int | None, left: str) -> DiceCheck:
    """Run both on the validation pairs."""
    images = sets.validation.images.permute(0, 2, 3, 1).contiguous().numpy()
    true = sets.validation.masks[:, 0] > 0
    starts = range(0, len(images), BATCH)
    chunks = [images[k : k + BATCH] for k in starts]
    ours = np.concatenate([expected(model, chunk, side=side, dtype=torch.float32).mask for chunk in chunks])
    theirs = np.concatenate([runtime(chunk).mask for chunk in chunks])
    before, after = (float(count(torch.from_numpy(m > 0), true).dice().mean()) for m in (ours, theirs))
    return DiceCheck(len(images), len(sets.calibration.images), before, after, left)


def calibrated(plain: Path, path: Path, model: Segmenter, sets: Sets, *, side: int | None) -> DiceCheck:
    """The 8-bit file at `path`, from the float32 one at `plain`: the first of `LEVELS` whose Dice holds."""
    check: DiceCheck | None = None
    for level in LEVELS:
        write_int8(plain, path, sets.calibration.images, level)
        check = dice_check(of_onnx(path), model, sets, side=side, left=level.left)
        if check.holds:
            return check
    assert check is not None
    raise UserError(
        f"{check.words()}; Dice drops by more than {100 * LARGEST_DROP:g} points; nothing was written. Calibrate on "
        "more images, of the kind that will come"
    )
