"""What the added images changed: each dose against none, seed by seed and image by image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from laworder.evaluation.doses import Cell
from laworder.evaluation.judging import Scores
from laworder.metrics.effect import crossed_interval, effect
from laworder.metrics.paired import compare

MEASURES = ("dice", "iou")


def by_dose(cells: Sequence[Cell], found: Mapping[str, Scores], *, seed: int = 0) -> list[dict[str, Any]]:
    """One record a dose: mean and spread over seeds, and the paired comparison with no synthetic images."""
    labels = sorted({cell.asked for cell in cells})
    records: list[dict[str, Any]] = []
    for asked in labels:
        at = {cell.seed: cell for cell in cells if cell.asked == asked}
        record: dict[str, Any] = {"asked": asked, "doses": sorted({cell.dose for cell in at.values()})}
        record["seeds"] = sorted(at)
        for measure in MEASURES:
            means = torch.tensor([_mean(found[cell.name], measure) for cell in at.values()], dtype=torch.float64)
            record[measure] = {
                "per_seed": means.tolist(),
                "mean": float(means.mean()),
                "std": float(means.std()) if len(means) > 1 else math.nan,
            }
            if asked > 0:
                record[measure]["gain"] = gain(cells, found, at, measure, seed=seed)
        records.append(record)
    return records


def gain(
    cells: Sequence[Cell], found: Mapping[str, Scores], at: Mapping[int, Cell], measure: str, *, seed: int
) -> dict[str, Any]:
    """The paired difference of a dose to none.

    over_seeds:  Student's test and Hedges' g over the seeds' mean differences: the honest unit of training
    over_images: permutation and Wilcoxon tests over images, each the mean over the seeds that scored it
    interval_95: bootstrap over seeds and images together
    """
    base = {cell.seed: found[cell.name] for cell in cells if cell.dose == 0}
    pairs = [(base[s], found[cell.name]) for s, cell in sorted(at.items())]
    names = sorted({name for one, _ in pairs for name in one.names})
    place = {name: i for i, name in enumerate(names)}
    first, second = (torch.full((len(pairs), len(names)), math.nan, dtype=torch.float64) for _ in range(2))
    for row, (none, some) in enumerate(pairs):
        for target, scores in ((first, none), (second, some)):
            columns = torch.tensor([place[name] for name in scores.names])
            target[row, columns] = getattr(scores, measure).double()
    difference = second - first
    per_seed = difference.nanmean(1)
    result: dict[str, Any] = {"difference": float(per_seed.mean()), "per_seed": per_seed.tolist()}
    if len(names) > 1:
        result["interval_95"] = list(crossed_interval(difference, seed=seed))
        result["over_images"] = asdict(compare(second.nanmean(0), first.nanmean(0), seed=seed))
    if len(pairs) > 1:
        result["over_seeds"] = asdict(effect(per_seed))
    return result


def _mean(scores: Scores, measure: str) -> float:
    values: Tensor = getattr(scores, measure)
    return float(values.double().mean())
