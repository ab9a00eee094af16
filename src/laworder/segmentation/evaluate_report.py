"""The page of `seg evaluate`: the result in words, tables with intervals, subsets, sizes, calibration, worst cases."""

from __future__ import annotations

import math
from typing import Any

from laworder.data.load import Arrays
from laworder.report import Page, Series, line_chart
from laworder.segmentation.evaluate import Evaluation
from laworder.segmentation.judge import MEASURES, Judgement
from laworder.segmentation.report import size_chart, worst_cases

NAMES = {
    "dice": "Dice",
    "iou": "IoU",
    "precision": "precision",
    "recall": "recall",
    "boundary_f1": "boundary F1",
    "surface_dice": "surface Dice",
    "hd95": "HD95 (pixels)",
}
CONVENTIONS = {
    "per_image": "per image, then averaged (ours)",
    "pooled": "all pixels of all images as one image",
    "curve": "mean over 256 thresholds after stretching each map to [0, 1]",
}


def evaluation_page(result: dict[str, Any], judged: Judgement, pairs: Arrays) -> Page:
    """The whole page. `pairs` are the images that the worst cases are shown on."""
    models = {name: result[name] for name in ("model", "against") if name in result}
    labels = {name: str(found["source"]) for name, found in models.items()}
    page = Page(title=f"{labels['model']} on {len(judged.names)} images", summary=_summary(result))
    page.section("Scores")
    score_tables(page, result, models, labels)
    if "paired" in result:
        page.section("Paired comparison")
        _paired(page, result["paired"], labels)
    page.section("Subsets")
    _subsets(page, models, labels)
    page.section("Dice against lesion size")
    size_chart(page, {labels[name]: found for name, found in models.items()})
    page.section("Calibration")
    calibration_charts(page, models, labels)
    page.section("The worst cases")
    worst_cases(page, Evaluation(judged.names, judged.counts, judged.probability), pairs)
    page.section("How this was made")
    page.record("manifest", result["manifest"])
    return page


def number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _ranged(found: dict[str, Any], measure: str) -> str:
    text = number(found["mean"][measure])
    if measure in found["interval_95"]:
        low, high = found["interval_95"][measure]
        text += f" ({number(low)} to {number(high)})"
    return text


def _summary(result: dict[str, Any]) -> list[str]:
    found = result["model"]
    lines = [
        f"Mean Dice {_ranged(found, 'dice')} over {found['images']} images, {found['images_with_lesion']} of them with "
        f"a lesion, judged at {result['size']}×{result['size']} pixels; 95 % bootstrap intervals over images."
    ]
    if "dice" in result.get("paired", {}):
        d = result["paired"]["dice"]
        better = "no clear difference" if d["interval_95"][0] <= 0 <= d["interval_95"][1] else "a difference"
        lines.append(
            f"Against {result['against']['source']}: {better} in Dice, {d['difference']:+.3f} "
            f"({d['interval_95'][0]:+.3f} to {d['interval_95'][1]:+.3f}), permutation p = {d['permutation_p']:.2g}."
        )
    return lines


def score_tables(page: Page, result: dict[str, Any], models: dict[str, Any], labels: dict[str, str]) -> None:
    """Means with intervals, and the conventions of Dice side by side."""
    head = ["measure", *labels.values(), *(f"{label}, images with lesion" for label in labels.values())]
    rows = [
        [
            NAMES[m],
            *(_ranged(found, m) for found in models.values()),
            *(number(found["lesion_only"][m]) for found in models.values()),
        ]
        for m in MEASURES
    ]
    page.table(head, rows, caption="Means over images, with 95 % bootstrap intervals.")
    left = ", ".join(f"{found['hd95_left_out']} of {found['images']}" for found in models.values())
    page.text(
        f"Outlines may be off by {result['tolerance']:g} pixels in boundary F1 and surface Dice. HD95 has no value "
        f"where a mask is empty; such images ({left}) are left out of its mean. Both masks empty count as 1 elsewhere, "
        "exactly one as 0."
    )
    rows = [
        [text, *(number(found["dice_conventions"][name]) for found in models.values())]
        for name, text in CONVENTIONS.items()
    ]
    page.table(
        ["Dice convention", *labels.values()],
        rows,
        caption="Three conventions circulate under the name Dice. The first two are taken at probability 0.5.",
    )


def _paired(page: Page, found: dict[str, Any], labels: dict[str, str]) -> None:
    rows = [
        [
            NAMES[m],
            f"{d['difference']:+.3f} ({d['interval_95'][0]:+.3f} to {d['interval_95'][1]:+.3f})",
            f"{d['wins']} / {d['ties']} / {d['losses']}",
            f"{d['permutation_p']:.2g}",
            f"{d['wilcoxon_p']:.2g}",
            number(d["cohens_dz"], 2),
            number(d["rank_biserial"], 2),
            d["images"],
        ]
        for m, d in found.items()
    ]
    head = ["measure", "difference", "higher / same / lower", "p permutation", "p Wilcoxon", "d_z", "r", "images"]
    page.table(head, rows, caption=f"{labels['model']} minus {labels['against']}, image by image.")
    page.text(
        "p: two-sided sign-flip permutation test of the mean difference, and Wilcoxon's signed-rank test; neither is "
        "corrected for the number of measures. d_z: mean over standard deviation of the differences. r: rank-biserial "
        "correlation, 1 where the first model is higher on every image. For HD95, lower is better."
    )


def _subsets(page: Page, models: dict[str, Any], labels: dict[str, str]) -> None:
    for name, found in models.items():
        rows = [
            [subset, scores["images"], *(number(scores[m]) for m in MEASURES)]
            for subset, scores in found["subsets"].items()
        ]
        mean = found["mean_over_subsets"]
        rows.append(["mean over subsets", found["images"], *(number(mean[m]) for m in MEASURES)])
        page.table(["subset", "images", *(NAMES[m] for m in MEASURES)], rows, caption=f"{labels[name]}, by subset.")


def calibration_charts(page: Page, models: dict[str, Any], labels: dict[str, str]) -> None:
    """Reliability by bins of probability, and the expected calibration error."""
    series = [Series("perfect", [0.0, 1.0], [0.0, 1.0])]
    for name, found in models.items():
        bins = found["calibration"]["bins"]
        series.append(Series(labels[name], [b["probability"] for b in bins], [b["lesion"] for b in bins]))
    page.figure(
        line_chart(series, x_label="predicted probability", y_label="share that is lesion", title="Reliability"),
        caption="Pixels in ten bins of predicted probability: the share of each bin that is lesion.",
    )
    rows = [
        [labels[name], number(found["calibration"]["ece"], 4), number(found["calibration"]["ece_from_0.1"], 4)]
        for name, found in models.items()
    ]
    head = ["model", "ECE, all pixels", "ECE, pixels of probability 0.1 and more"]
    page.table(head, rows, caption="Expected calibration error.")
