"""Frozen segmenters as judges: any that `load_segmenter` takes, or a trained nnU-Net v2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from PIL import Image
from torch import Tensor

from laworder.data.load import load_arrays
from laworder.data.pairs import Source
from laworder.metrics.overlap import Counts, bootstrap_interval, by_lesion_size, count
from laworder.segmentation.loading import load_segmenter
from laworder.segmentation.predictor import Predictor, classes_of
from laworder.segmenters.nnunet_driver import is_nnunet, predictor_of, read_about, trained_folds, write_picture

_CHUNK = 32


@dataclass(frozen=True)
class Looked:
    """A judged image: what is shown of it, at the size at which it was judged."""

    image: UInt8[np.ndarray, "h w 3"]
    true: Bool[np.ndarray, "h w"]
    found: Bool[np.ndarray, "h w"]


class Judge(Protocol):
    @property
    def label(self) -> str:
        """What it is, in words."""
        ...

    def look(self, source: Source) -> Iterator[Looked]:
        """Every pair of the source, in its order."""
        ...


@dataclass(frozen=True)
class Scores:
    """Overlap per image of a whole source."""

    names: list[str]
    dice: Tensor
    iou: Tensor
    fraction: Tensor

    def summary(self, *, seed: int = 0) -> dict[str, Any]:
        """Means, intervals, and both measures by lesion size."""
        lesions = self.fraction > 0
        found: dict[str, Any] = {"images": len(self.names), "images_with_lesion": int(lesions.sum())}
        for name, values in (("dice", self.dice), ("iou", self.iou)):
            found[name] = float(values.mean())
            if len(values) > 1:
                found[f"{name}_interval_95"] = list(bootstrap_interval(values, seed=seed))
            found[f"{name}_by_lesion_size"] = [vars(b) for b in by_lesion_size(values, self.fraction)]
        found["dice_lesion_only"] = float(self.dice[lesions].mean()) if bool(lesions.any()) else None
        return found


def open_judge(name: str, *, device: torch.device, nnunet: Path | None = None) -> Judge:
    """The judge that `name` names."""
    folder = Path(name).expanduser()
    if is_nnunet(folder):
        return NnUNetJudge(folder, device=device.type, python=nnunet)
    label = folder.resolve().name if folder.is_dir() else name
    return SegmenterJudge(label, Predictor(load_segmenter(name, device=device), device))


@dataclass(frozen=True)
class SegmenterJudge:
    """A segmenter of ours, at the size at which it was trained."""

    label: str
    predictor: Predictor

    def look(self, source: Source) -> Iterator[Looked]:
        threshold = self.predictor.model.preprocessing.threshold
        for start in range(0, len(source), _CHUNK):
            indices = range(start, min(start + _CHUNK, len(source)))
            pairs = load_arrays(source, self.predictor.size, self.predictor.channels, indices, progress=False)
            found = classes_of(self.predictor(pairs.images), threshold) > 0
            for image, mask, one in zip(pairs.images, pairs.masks, found, strict=True):
                shown = image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
                yield Looked(shown, (mask[0] > 0).numpy(), one.numpy())


@dataclass(frozen=True)
class NnUNetJudge:
    """A trained nnU-Net v2, through its own prediction, at each picture's own size.

    folds: those whose mean judges; all finished ones where empty
    """

    folder: Path
    device: str
    python: Path | None = None
    folds: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"nnU-Net v2 ({self.folder.name})"

    def look(self, source: Source) -> Iterator[Looked]:
        channels = len(read_about(self.folder)["channel_names"])
        with TemporaryDirectory() as place:
            images, out = Path(place) / "images", Path(place) / "masks"
            images.mkdir()
            for i in range(len(source)):
                write_picture(images / f"case{i:06}_0000.png", source.read(i).image, channels)
            driver = predictor_of(self.folder, Path(place), python=self.python, device=self.device)
            driver.predict(self.folder, self.folds or trained_folds(self.folder), images, out)
            for i in range(len(source)):
                pair = source.read(i)
                shown = np.repeat(pair.image, 3, axis=2) if pair.image.shape[2] == 1 else pair.image
                yield Looked(shown, pair.mask > 0, lesion_of(out / f"case{i:06}.png"))


def lesion_of(file: Path) -> Bool[np.ndarray, "h w"]:
    """A mask file of nnU-Net's: where it is not background."""
    with Image.open(file) as mask:
        return np.array(mask) > 0


def scored(judge: Judge, source: Source) -> Scores:
    """The judge on every pair."""
    counts = [
        count(torch.from_numpy(one.found.copy())[None], torch.from_numpy(one.true.copy())[None])
        for one in judge.look(source)
    ]
    columns = ([f(one) for one in counts] for f in (Counts.dice, Counts.iou, Counts.lesion_fraction))
    dice, iou, fraction = (torch.cat(column) for column in columns)
    return Scores(list(source.names), dice, iou, fraction)
