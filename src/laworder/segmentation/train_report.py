"""The page of one training: what came out, how it learnt, where it fails, what its probabilities are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laworder.data.load import Arrays
from laworder.metrics.surface import TOLERANCE
from laworder.report import Page, Series, line_chart
from laworder.runs import Run, read_metrics
from laworder.segmentation.evaluate import Evaluation
from laworder.segmentation.evaluate_report import calibration_charts, score_tables
from laworder.segmentation.report import POINTS, WORST, headline, size_chart, smoothed, worst_cases

OWN = "this run"


def write_report(run: Run, validation: Evaluation, measures: dict[str, Any], pairs: Arrays, *, title: str) -> None:
    """`report.html` in the run folder. `measures` are those of `segmentation.judge`."""
    lines = read_metrics(run.folder / "metrics.jsonl")
    page = Page(title=title, summary=[headline(validation.summary()), _course(lines)])
    found, labels = {OWN: measures}, {OWN: OWN}
    page.section("Scores on the held-out images")
    score_tables(page, {"tolerance": TOLERANCE}, found, labels)
    page.section("Learning curves")
    curves(page, lines)
    page.section("Dice against lesion size")
    size_chart(page, found)
    page.section("Calibration")
    calibration_charts(page, found, labels)
    page.section(f"The {min(WORST, len(pairs.names))} worst cases")
    worst_cases(page, validation, pairs)
    page.section("How this was made")
    page.record("manifest.json", vars(run.manifest))
    page.write(run.folder / "report.html")


def _course(lines: Sequence[dict[str, Any]]) -> str:
    """How long it trained, and when it was at its best."""
    validated = [line for line in lines if "val_dice" in line]
    best = max(validated, key=lambda line: (line["val_dice"], -line["step"]))
    return (
        f"{lines[-1]['step']} updates; the weights kept are those after update {best['step']}, whose validation Dice "
        f"was the highest of {len(validated)} validations."
    )


def curves(page: Page, lines: Sequence[dict[str, Any]]) -> None:
    """The loss and its terms, validation Dice, and the learning rate over updates."""
    terms = [name for name in ("loss", "bce", "ce", "dice") if name in lines[0]]
    names = {"loss": "loss", "bce": "cross-entropy", "ce": "cross-entropy", "dice": "Dice loss"}
    drawn = {name: smoothed([(line["step"], line[name]) for line in lines]) for name in terms}
    page.figure(
        line_chart(
            [Series(names[name], *zip(*points, strict=True)) for name, points in drawn.items()],
            x_label="update",
            y_label="loss",
            title="Training loss",
        ),
        caption=f"Training loss and its terms, means over windows of {max(1, len(lines) // POINTS)} updates.",
    )
    validated = [line for line in lines if "val_dice" in line]
    steps = [line["step"] for line in validated]
    scores = {"Dice": "val_dice", "IoU": "val_iou"}
    page.figure(
        line_chart(
            [Series(name, steps, [line[key] for line in validated]) for name, key in scores.items()],
            x_label="update",
            y_label="score",
            title="Validation",
        ),
        caption="Dice and IoU on the held-out pairs; the weights with the best Dice are kept.",
    )
    rates = Series("rate", *zip(*((line["step"], line["lr"]) for line in lines), strict=True))
    page.figure(
        line_chart([rates], x_label="update", y_label="rate", title="Learning rate"),
        caption="Learning rate of each update.",
    )
