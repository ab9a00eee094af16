"""Mask recovery: a frozen segmenter on every generated image, against the mask that made it.

Beside it always stands what the same segmenter does on real images that it has not seen, which is all that can be asked
of generated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laworder.data.pairs import Part, Source
from laworder.evaluation.context import Context
from laworder.evaluation.judging import Judge, Looked, Scores, open_judge, scored
from laworder.evaluation.leakage import refuse_trained_on
from laworder.evaluation.section import Row, Section, not_measured
from laworder.metrics.overlap import count
from laworder.report import Page, bar_chart, contour, picture_uri
from laworder.report.pictures import PREDICTION

NAME, TITLE = "recovery", "Mask recovery"
SHOWN = 6


def measure(context: Context) -> Section:
    """The section of the report."""
    if context.judge is None:
        return not_measured(
            NAME, TITLE, "give --judge: a run of `laworder seg train`, a saved model, or an nnU-Net folder"
        )
    ceiling, remarks = _ceiling(context), _remarks(context)
    judge = open_judge(context.judge, device=context.device, nnunet=context.nnunet)
    watched = _Watched(judge, len(context.generated))
    scores = scored(watched, context.generated)
    real = None if ceiling is None else scored(judge, ceiling)
    return _section(context, judge.label, scores, real, watched.kept(scores), remarks)


def check(context: Context) -> None:
    """UserError where the judge cannot be opened, or has seen what it would judge."""
    if context.judge is not None:
        _remarks(context)
        open_judge(context.judge, device=context.device, nnunet=context.nnunet)


def _remarks(context: Context) -> list[str]:
    """What is found out about the judge's training; UserError where it saw what it would judge, unless forced."""
    assert context.judge is not None, "asked only where there is a judge"
    ceiling = _ceiling(context)
    judged = {"generated images": context.generated} | ({} if ceiling is None else {"real held-out images": ceiling})
    return refuse_trained_on(context.judge, context.training, judged, force=context.force)


def _ceiling(context: Context) -> Source | None:
    """The real images that the judge has not seen: as given, else those that its own run held out."""
    if context.held_out is not None:
        return context.held_out
    if context.protocol == "held-out":
        return context.real
    known = context.training
    if known.source is not None and known.held_out:
        return Part(known.source, list(known.held_out))
    return None


class _Watched:
    """A judge that keeps the images on which it did best and worst, and no others: memory stays flat."""

    def __init__(self, judge: Judge, count: int) -> None:
        self.judge, self.label, self.count = judge, judge.label, count
        self._best: list[tuple[float, int, Looked]] = []
        self._worst: list[tuple[float, int, Looked]] = []

    def look(self, source: Source) -> Iterator[Looked]:
        for i, one in enumerate(self.judge.look(source)):
            yield one
            if one.true.any():
                counts = count(torch.from_numpy(one.found.copy())[None], torch.from_numpy(one.true.copy())[None])
                dice = float(counts.dice())
                self._worst = sorted([*self._worst, (dice, i, one)], key=lambda entry: entry[:2])[:SHOWN]
                self._best = sorted([*self._best, (dice, i, one)], key=lambda entry: (-entry[0], entry[1]))[:SHOWN]

    def kept(self, scores: Scores) -> dict[str, list[tuple[str, float, Looked]]]:
        worst = {i for _, i, _ in self._worst}
        best = [entry for entry in self._best if entry[1] not in worst]
        return {
            name: [(scores.names[i], dice, one) for dice, i, one in entries]
            for name, entries in (("best", best), ("worst", self._worst))
        }


def _section(
    context: Context,
    label: str,
    scores: Scores,
    real: Scores | None,
    kept: dict[str, list[tuple[str, float, Looked]]],
    remarks: list[str],
) -> Section:
    found = scores.summary(seed=context.seed)
    ceiling = None if real is None else real.summary(seed=context.seed)
    if ceiling is None:
        beside = "the judge's own score on real images is not known: give --held-out"
    else:
        beside = f"the judge on {ceiling['images']} real held-out images: "
    rows = [
        Row(
            f"Mask recovery, {title}",
            found[key],
            tuple(found[f"{key}_interval_95"]) if f"{key}_interval_95" in found else None,
            f"{found['images']} images; " + (beside if ceiling is None else f"{beside}{ceiling[key]:.3f}"),
            3,
            metric,
        )
        for key, title, metric in (("dice", "Dice", "mask_dice"), ("iou", "IoU", "mask_iou"))
    ]
    words = [f"{label} finds the masks again in the generated images with Dice {found['dice']:.3f}"]
    words[0] += "." if ceiling is None else f", where it reaches {ceiling['dice']:.3f} on real held-out images."
    words += [text[0].upper() + text[1:] + "." for text in remarks]
    values: dict[str, Any] = {"measured": True, "judge": context.judge, "label": label, "generated": found}
    values |= {"real_held_out": ceiling, "remarks": remarks}
    values["worst"] = [{"name": name, "dice": dice} for name, dice, _ in kept["worst"]]
    return Section(NAME, TITLE, values, rows, words, _Drawing(found, ceiling, kept))


@dataclass(frozen=True)
class _Drawing:
    """Dice by lesion size, and overlays of the best and the worst."""

    found: dict[str, Any]
    ceiling: dict[str, Any] | None
    kept: dict[str, list[tuple[str, float, Looked]]]

    def __call__(self, page: Page) -> None:
        sides = {"generated": self.found} | ({} if self.ceiling is None else {"real, held out": self.ceiling})
        bins = sorted({(b["low"], b["high"]) for side in sides.values() for b in side["dice_by_lesion_size"]})
        if bins:
            self._by_size(page, sides, bins)
        for which, entries in self.kept.items():
            if entries:
                listed = "; ".join(f"{name} {dice:.2f}" for name, dice, _ in entries)
                page.sheet(
                    [[_overlay(*entry) for entry in entries]],
                    caption=f"Where the judge did {which}: {listed}. Green: the mask that made the image; "
                    "yellow: what the judge found.",
                )

    def _by_size(self, page: Page, sides: dict[str, dict[str, Any]], bins: list[tuple[float, float]]) -> None:
        labels = [f"{100 * low:g}–{100 * high:g} %" for low, high in bins]
        by_bin = {
            (name, key): {(b["low"], b["high"]): b for b in side[f"{key}_by_lesion_size"]}
            for name, side in sides.items()
            for key in ("dice", "iou")
        }
        nothing = {"mean": float("nan")}
        bars = [(name, [by_bin[name, "dice"].get(b, nothing)["mean"] for b in bins]) for name in sides]
        page.figure(
            bar_chart(labels, bars, x_label="lesion area, share of the image", y_label="Dice", title="Dice by size"),
            caption="Mean Dice by the size of the lesion, on generated images and on real ones.",
        )
        rows = [
            [
                label,
                *(
                    cell
                    for name in sides
                    for cell in (
                        by_bin[name, "dice"].get(b, {"images": 0})["images"],
                        _mean(by_bin[name, "dice"].get(b)),
                        _mean(by_bin[name, "iou"].get(b)),
                    )
                ),
            ]
            for label, b in zip(labels, bins, strict=True)
        ]
        head = [f"{what}, {name}" for name in sides for what in ("images", "Dice", "IoU")]
        page.table(["lesion area", *head], rows, caption="The same as a table.")


def _mean(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{found['mean']:.3f}"


def _overlay(name: str, dice: float, one: Looked) -> tuple[str, str]:
    drawn = contour(contour(np.ascontiguousarray(one.image), one.true), one.found, colour=PREDICTION)
    return picture_uri(drawn), f"{name}, Dice {dice:.2f}"
