"""The downstream study as one table and one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laworder import published
from laworder.report import Page, Series, line_chart

HEAD = (
    "synthetic images",
    "Dice",
    "IoU",
    "Dice gained",
    "p over seeds",
    "g over seeds",
    "p over images",
    "the paper's",
)


def rows(records: Sequence[Mapping[str, Any]], dataset: str | None) -> list[list[str]]:
    """One line a dose."""
    return [_row(record, dataset) for record in records]


def _row(record: Mapping[str, Any], dataset: str | None) -> list[str]:
    gain = record["dice"].get("gain", {})
    seeds, images = gain.get("over_seeds", {}), gain.get("over_images", {})
    gained = ""
    if gain:
        gained = f"{gain['difference']:+.3f}"
        if "interval_95" in gain:
            gained += f" ({gain['interval_95'][0]:+.3f} to {gain['interval_95'][1]:+.3f})"
    doses = "–".join(str(d) for d in sorted({record["doses"][0], record["doses"][-1]}))
    return [
        doses if record["doses"] == [record["asked"]] else f"{doses} (of {record['asked']} asked)",
        *(_spread(record[measure]) for measure in ("dice", "iou")),
        gained,
        _number(seeds.get("t_test_p"), 3),
        _effect(seeds),
        _number(images.get("permutation_p"), 3),
        paper(record["asked"], dataset),
    ]


def _spread(found: Mapping[str, Any]) -> str:
    std = found["std"]
    return f"{found['mean']:.3f}" + (f" ± {std:.3f}" if math.isfinite(std) else "")


def _effect(found: Mapping[str, Any]) -> str:
    text = _number(found.get("hedges_g"), 2)
    if text and all(math.isfinite(end) for end in found["interval_95"]):
        text += f" ({found['interval_95'][0]:.2f} to {found['interval_95'][1]:.2f})"
    return text


def _number(value: float | None, digits: int) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def paper(dose: int, dataset: str | None) -> str:
    """The paper's cell of that dose."""
    if dataset is None:
        return ""
    method = "Real only" if dose == 0 else f"Real + LAW, {dose}"
    known = {(row.method, row.dataset): row for table in ("dose_controls", "downstream") for row in
             published.find(table=table, metric="dice")}  # fmt: skip
    cell = known.get((method, dataset))
    return "" if cell is None else f"{cell.text()} %"


def differences(settings: Mapping[str, Any], dataset: str | None) -> list[str]:
    """What must be known to read the numbers, and why the paper's are another measurement."""
    judged = "a separate test set" if settings["test"] else "each seed's real validation part"
    said = [
        f"Scores are means over images of {judged}; mean ± standard deviation over seeds. Doses are nested. "
        "p over seeds: Student's paired test, each seed one number; g: Hedges' effect size with its 95 % interval; "
        "p over images: sign-flip permutation, which knows nothing of the chance in training.",
        "Synthetic images of masks that a seed validates on are left out of its training."
        if not settings["keep_validation_masks"]
        else "Synthetic images of validation masks are trained on (--keep-validation-masks).",
    ]
    said.append(
        "Whether the generator itself was trained on the validation images is not known here; if it was, some of what "
        "is gained may be memory of them."
    )
    if settings["model"] == "nnunet":
        said.append(
            "nnU-Net v2 through its own plan, train and predict; it has no seed of its own, so a seed decides who is "
            "validated on and which images are added. It was planned once, on all pairs."
        )
    elif settings["equal_updates"]:
        said.append("Every dose has as many optimiser updates as no synthetic images have, and so fewer epochs.")
    if dataset is not None:
        table = published.TABLES["downstream"]
        said.append(f"The paper's {table.title}: {'; '.join(table.protocol)}; its segmenter and split are another.")
    return said


def as_markdown(records: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """The one table."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(records, settings["dataset"])]
    for text in differences(settings, settings["dataset"]):
        lines += ["", text]
    return "\n".join(lines) + "\n"


def as_page(records: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], manifest: Mapping[str, Any]) -> Page:
    """downstream.html."""
    best = max(records, key=lambda record: record["dice"]["mean"])
    none = records[0]
    words = [
        f"{settings['model']} on real pairs alone: Dice {_spread(none['dice'])}, {len(none['seeds'])} seeds. "
        f"Best at {best['asked']} synthetic images: {_spread(best['dice'])}."
    ]
    page = Page(title=f"Synthetic images added to {Path(settings['real']).name}", summary=words)
    page.section("By dose")
    page.table(HEAD, rows(records, settings["dataset"]), caption="Real pairs, and real with synthetic ones.")
    page.text(*differences(settings, settings["dataset"]))
    seeds = none["seeds"]
    curves = [Series(f"seed {s}", *_curve(records, s)) for s in seeds] if len(seeds) > 1 else []
    means = Series("mean", [float(r["asked"]) for r in records], [r["dice"]["mean"] for r in records])
    page.figure(
        line_chart([means, *curves], x_label="synthetic images added", y_label="Dice", title="Dice by dose"),
        caption="Dice on real images against the number of synthetic images added to training.",
    )
    page.section("How this was made")
    page.record("manifest", manifest)
    return page


def _curve(records: Sequence[Mapping[str, Any]], seed: int) -> tuple[list[float], list[float]]:
    points = [(float(r["asked"]), r["dice"]["per_seed"][r["seeds"].index(seed)]) for r in records if seed in r["seeds"]]
    return [x for x, _ in points], [y for _, y in points]
