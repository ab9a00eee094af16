"""The page of one training: what was kept and why, curves, sheets of samples, δ strips, whether masks are obeyed."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laworder.diffusion import probe
from laworder.diffusion.looks import FOLDER
from laworder.diffusion.score import as_text
from laworder.diffusion.settings import TrainConfig
from laworder.report import Page, Series, line_chart
from laworder.runs import Run, read_metrics
from laworder.segmentation.report import smoothed

DIAGNOSTICS = {
    "where the error is": ("error_inside", "error_outside", "error_border"),
    "weights": ("w_mean", "w_min", "w_max"),
    "delta": ("delta_mean", "delta_mask_correlation"),
    "shares of lesion pixels and samples": ("saturated", "vanished", "uninformative"),
}
"""Title → numbers of the log (laworder.law.diagnostics says what each is)."""
SHEETS = 4


def write_report(run: Run, config: TrainConfig, summary: dict[str, Any]) -> None:
    """`report.html` in the run folder."""
    lines = read_metrics(run.folder / "metrics.jsonl")
    what = "image prior" if config.stage == "prior" else config.objective
    page = Page(title=f"{config.backbone}, {what}, on {config.data}", summary=headlines(summary))
    page.section("Samples")
    _samples(page, run.folder, summary["step"], with_masks=config.stage == "control")
    page.section("Which weights were kept")
    _validation(page, lines, summary)
    if "verdict" in summary:
        page.section("Is the control used?")
        page.text(summary["verdict"])
        _probe(page, lines)
    page.section("Learning curves")
    _curves(page, lines)
    page.section("How this was made")
    page.record("training.json", summary)
    page.record("manifest.json", vars(run.manifest))
    page.write(run.folder / "report.html")


def headlines(summary: dict[str, Any]) -> list[str]:
    """The result in a few sentences."""
    name = summary["best"].removeprefix("val_").replace("_", " ")
    first = (
        f"The weights of step {summary['step']} of {summary['steps']} were kept: {name} "
        f"{as_text(summary['metrics'][summary['best']])} on {summary['validation']}."
    )
    told = [first]
    if "ceiling" in summary:
        told.append(
            f"The judge ({summary['judge']}) reaches a Dice of {summary['ceiling']:.3f} on the real images of the same "
            "masks: that is its ceiling."
        )
    return [*told, summary["verdict"]] if "verdict" in summary else told


def _samples(page: Page, folder: Path, kept: int, *, with_masks: bool) -> None:
    sheets = sorted((folder / FOLDER).glob("sheet-*.png"))
    chosen = [path for path in sheets if _step(path) == kept] or sheets[-1:]
    rows = "mask, real image, drawn image with the mask's outline, drawn image" if with_masks else "real, drawn"
    for path in chosen:
        page.sheet([[_picture(path, rows)]], caption=f"Drawn with the kept weights (step {_step(path)}): {rows}.")
    deltas = sorted((folder / FOLDER).glob("delta-*.png"))
    if deltas:
        for path in spaced(deltas, SHEETS):
            page.sheet(
                [[_picture(path, "mask and delta")]],
                caption=f"δ at step {_step(path)}: the mask on the latents' grid, then δ at 10, 40, 70 and 95 % of the "
                "diffusion; black is 0, white is 1.",
            )
    others = spaced([path for path in sheets if path not in chosen], SHEETS)
    for path in others:
        page.sheet([[_picture(path, rows)]], caption=f"The same masks and noise at step {_step(path)}.")


def spaced(paths: Sequence[Path], most: int) -> list[Path]:
    """At most so many of them, first and last among them, evenly between."""
    if len(paths) <= most:
        return list(paths)
    return [paths[round(i * (len(paths) - 1) / (most - 1))] for i in range(most)]


def _step(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _picture(path: Path, text: str) -> tuple[str, str]:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii"), f"{text}, {path.stem}"


def _validation(page: Page, lines: Sequence[dict[str, Any]], summary: dict[str, Any]) -> None:
    page.text(
        f"Chosen by {summary['chosen_by']}: {'more' if summary['mode'] == 'max' else 'less'} is better. The training "
        "loss has no say in it."
    )
    names = [n for n in ("val_recovered_dice", "val_recovered_iou", "val_realism") if any(n in line for line in lines)]
    overlaps = [n for n in names if "recovered" in n]
    for group, label in ((overlaps, "overlap with the mask"), (["val_realism"], "distance to real lesions")):
        _chart(page, lines, [n for n in group if n in names], label)


def _probe(page: Page, lines: Sequence[dict[str, Any]]) -> None:
    looks = [line for line in lines if probe.NAMES[0] in line]
    page.table(
        ["step", *(f"{kind} {where}" for kind in probe.KINDS for where in ("inside", "outside"))],
        [[line["step"], *(f"{line[name]:.3f}" for name in probe.NAMES)] for line in looks],
        caption="What other masks change: mean change of pixels that were lesion (inside) and that never are "
        "(outside), in units of the picture's standard deviation.",
    )


def _curves(page: Page, lines: Sequence[dict[str, Any]]) -> None:
    parts = [n for n in ("loss", "denoise", "dice", "fit", "teacher", "distill") if n in lines[0]]
    _chart(page, lines, parts, "training loss")
    for title, names in DIAGNOSTICS.items():
        present = [name for name in names if name in lines[0]]
        if present:
            _chart(page, lines, present, title)


def _chart(page: Page, lines: Sequence[dict[str, Any]], names: Sequence[str], label: str) -> None:
    series: list[Series] = []
    for name in names:
        points = [(line["step"], line[name]) for line in lines if name in line and abs(line[name]) < float("inf")]
        if points:
            series.append(Series(name.removeprefix("val_"), *zip(*smoothed(points), strict=True)))
    if series:
        page.figure(line_chart(series, x_label="step", y_label=label, title=label), caption=f"{label.capitalize()}.")
