"""Every score of a segmenter on a set: a row an image, then means by subset, by lesion size, and over all.

All scores are taken at the size to which the set was resized, in its pixels. With several classes, lesion means any
class but background.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.prepared import PreparedSource
from laworder.data.sources.folder import FolderSource, groups_of
from laworder.metrics.calibration import calibration_error, reliability
from laworder.metrics.overlap import CONVENTIONS, Counts, bootstrap_interval, by_lesion_size, count
from laworder.metrics.surface import TOLERANCE, outline_distances

MEASURES = ("dice", "iou", "precision", "recall", "boundary_f1", "surface_dice", "hd95")
UNBOUNDED = frozenset({"hd95"})
"""Measures without a value where a mask is empty: their means leave those images out and say how many."""


@dataclass(frozen=True)
class Judgement:
    """Scores of one model, per image in the order of the set.

    subsets: the subset of each image
    scores: measure → one value an image
    """

    names: list[str]
    subsets: list[str]
    counts: Counts
    probability: Float[Tensor, "n h w"]
    true: UInt8[Tensor, "n h w"]
    scores: dict[str, Float[Tensor, " n"]]

    def summary(self, *, resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
        """All that can be said in numbers; NaN where there is nothing to average."""
        every = torch.ones(len(self.names), dtype=torch.bool)
        fraction = self.counts.lesion_fraction()
        by_size = {m: by_lesion_size(self.scores[m], fraction) for m in MEASURES if m not in UNBOUNDED}
        subsets = {name: self._where(name) for name in sorted(set(self.subsets))}
        true = self.true > 0
        bins = reliability(self.probability, true)
        return {
            "images": len(self.names),
            "images_with_lesion": int((fraction > 0).sum()),
            "mean": self._means(every),
            "interval_95": self._intervals(resamples, seed),
            "hd95_left_out": int((~self.scores["hd95"].isfinite()).sum()),
            "lesion_only": self._means(fraction > 0),
            "subsets": {name: {"images": int(w.sum()), **self._means(w)} for name, w in subsets.items()},
            "mean_over_subsets": _mean_of([self._means(w) for w in subsets.values()]),
            "by_lesion_size": {m: [asdict(b) for b in found] for m, found in by_size.items()},
            "dice_by_lesion_size": [asdict(b) for b in by_size["dice"]],
            "dice_conventions": {name: f(self.probability, true) for name, f in CONVENTIONS.items()},
            "calibration": {
                "bins": [asdict(b) for b in bins],
                "ece": calibration_error(bins),
                "ece_from_0.1": calibration_error(bins, least=0.1),
            },
        }

    def _where(self, subset: str) -> Tensor:
        return torch.tensor([name == subset for name in self.subsets])

    def _means(self, where: Tensor) -> dict[str, float]:
        return {measure: finite_mean(values[where]) for measure, values in self.scores.items()}

    def _intervals(self, resamples: int, seed: int) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for measure, values in self.scores.items():
            finite = values[values.isfinite()]
            if len(finite) > 1:
                found[measure] = list(bootstrap_interval(finite, resamples=resamples, seed=seed))
        return found

    def csv(self) -> str:
        """One line an image; `inf` and `nan` for HD95 as `metrics.surface` states them."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["name", "subset", "lesion_fraction", *MEASURES])
        columns = [self.counts.lesion_fraction(), *(self.scores[m] for m in MEASURES)]
        values = torch.stack(columns, 1).tolist()
        for name, subset, row in zip(self.names, self.subsets, values, strict=True):
            writer.writerow([name, subset, *(f"{value:.6f}" for value in row)])
        return text.getvalue()


def finite_mean(values: Float[Tensor, " n"]) -> float:
    """Mean over the values that are numbers; NaN where none is."""
    finite = values[values.isfinite()]
    return float(finite.mean()) if len(finite) else math.nan


def _mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    return {m: finite_mean(torch.tensor([row[m] for row in rows], dtype=torch.float64)) for m in rows[0]}


def judge(
    probability: Float[Tensor, "n h w"],
    masks: UInt8[Tensor, "n 1 h w"],
    *,
    names: list[str],
    subsets: list[str] | None = None,
    threshold: float = 0.5,
    tolerance: float = TOLERANCE,
) -> Judgement:
    """Score probability maps against true masks. `tolerance` of the outlines is in pixels."""
    predicted, true = probability > threshold, masks[:, 0] > 0
    counts = count(predicted, true)
    outlines = {name: torch.zeros(len(names), dtype=torch.float64) for name in ("boundary_f1", "surface_dice", "hd95")}

    def measure(index: int) -> None:
        distances = outline_distances(predicted[index], true[index])
        outlines["boundary_f1"][index] = distances.f1(tolerance)
        outlines["surface_dice"][index] = distances.surface_dice(tolerance)
        outlines["hd95"][index] = distances.percentile(0.95)

    over_cores(measure, len(names), label="outlines")
    overlap = {"dice": counts.dice(), "iou": counts.iou(), "precision": counts.precision(), "recall": counts.recall()}
    return Judgement(names, subsets or ["all"] * len(names), counts, probability, masks[:, 0], overlap | outlines)


def subsets_of(source: Source, by: str) -> list[str]:
    """The subset of every pair.

    by: "folder" (the folder that an image file lies in), "group" (patient or sequence), "none", or a regular
        expression whose first parentheses, searched in folder/stem or the pair's name, are the subset. For prepared
        data, "folder" is the smallest pool that holds the pair.
    """
    names = list(source.names)
    if by == "none":
        return ["all"] * len(names)
    if by == "group":
        return list(source.groups)
    if by == "folder" and isinstance(source, PreparedSource):
        return _pools(source)
    keys = [pair.key for pair in source.pairs] if isinstance(source, FolderSource) else names
    if by != "folder":
        return groups_of(keys, names, by)
    return ["all" if folder == "." else folder for folder in groups_of(keys, names, "folder")]


def _pools(source: PreparedSource) -> list[str]:
    smallest = sorted(source.pools.items(), key=lambda item: -len(item[1]))
    of = {name: pool for pool, names in smallest for name in names}
    return [of.get(name, "all") for name in source.names]


def json_text(value: Any) -> str:
    """Strict JSON: numbers that are none become null."""

    def plain(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {key: plain(inner) for key, inner in entry.items()}
        if isinstance(entry, (list, tuple)):
            return [plain(inner) for inner in entry]
        return None if isinstance(entry, float) and not math.isfinite(entry) else entry

    return json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
