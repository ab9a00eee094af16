"""The downstream study as one table and one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laworder import published
from laworder.report import Page, Series, line_chart

HEAD = (
    "added",
    "Dice",
    "IoU",
    "Dice gained",
    "p, seeds",
    "g, seeds",
    "p, images",
    "the paper's",
)


TABLES = ("downstream", "dose_controls")
POOLS = {"polyps": 1450, "kits19": 5003, "brisc": 3933}
"""The paper's whole pool: one synthetic image a training mask."""


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
        _chance(seeds.get("t_test_p")),
        _effect(seeds),
        _chance(images.get("permutation_p")),
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


def in_words(seeds: Mapping[str, Any] | None) -> str:
    """Test and effect size over seeds, behind the difference on the screen; nothing where there is one seed."""
    known = seeds or {}
    said = [("p", _chance(known.get("t_test_p"))), ("Hedges' g", _number(known.get("hedges_g"), 2))]
    listed = ", ".join(f"{name} {number}" for name, number in said if number)
    return f" (over seeds {listed})" if listed else ""


def _chance(p: float | None) -> str:
    """No p is 0."""
    return "<0.001" if p is not None and p < 0.0005 else _number(p, 3)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def paper(dose: int, dataset: str | None) -> str:
    """The paper's cell of that dose: of its whole pool from one table, of less from another."""
    if dataset is None:
        return ""
    method = "Real only" if dose == 0 else "Real + LAW" if dose == POOLS[dataset] else f"Real + LAW, {dose}"
    cells = {row.method: row for table in TABLES for row in published.find(table=table, dataset=dataset, metric="dice")}
    return "" if method not in cells else f"{cells[method].text()} %"


def published_cells(dataset: str | None) -> list[dict[str, Any]]:
    """The paper's numbers on the data set, for the JSON; Dice in percent."""
    if dataset is None:
        return []
    cells = [cell for name in TABLES for cell in published.find(table=name, dataset=dataset)]
    return [
        {"method": c.method, "dice_percent": c.mean, "std": c.std, "table": published.TABLES[c.table].number}
        for c in cells
    ]


def theirs(dataset: str) -> list[str]:
    """The paper's numbers on the data set with all its generators, and how they came about."""
    cells = published.find(table=TABLES[0], dataset=dataset, metric="dice")
    listed = "; ".join(f"{cell.method} {cell.text()} %" for cell in cells)
    found = [f"The paper's Dice on {dataset}, with all of its {POOLS[dataset]} synthetic images: {listed}."]
    for name in TABLES:
        table = published.TABLES[name]
        if published.find(table=name, dataset=dataset):
            found.append(
                f"The paper's {table.title}: {'; '.join(table.protocol)}; its segmenter and split are another."
            )
    return found


def differences(settings: Mapping[str, Any], dataset: str | None) -> list[str]:
    """What must be known to read the numbers, and why the paper's are another measurement."""
    judged = "a separate test set" if settings["test"] else "each seed's real validation part"
    said = [
        f"Scores are means over images of {judged}; mean ± standard deviation over seeds. Doses are nested. "
        "p, seeds: Student's paired test, each seed one number; g: Hedges' effect size over seeds with its 95 % "
        "interval; p, images: sign-flip permutation over images, which knows nothing of the chance in training.",
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
    return said + ([] if dataset is None else theirs(dataset))


def as_markdown(records: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], remarks: Sequence[str] = ()) -> str:
    """The one table."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(records, settings["dataset"])]
    for text in (*remarks, *differences(settings, settings["dataset"])):
        lines += ["", text]
    return "\n".join(lines) + "\n"


def as_page(
    records: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    manifest: Mapping[str, Any],
    remarks: Sequence[str] = (),
) -> Page:
    """downstream.html."""
    best = max(records, key=lambda record: record["dice"]["mean"])
    none = records[0]
    words = [
        f"{settings['model']} on real pairs alone: Dice {_spread(none['dice'])}, {len(none['seeds'])} seeds. "
        + (_best(best) if best["asked"] else "No dose of synthetic images is better.")
    ]
    page = Page(title=f"Synthetic images added to {Path(settings['real']).name}", summary=words)
    page.section("By dose")
    lines = [[cell.replace(" ± ", "\u00a0±\u00a0") for cell in row] for row in rows(records, settings["dataset"])]
    page.table(HEAD, lines, caption="Real pairs alone, and with synthetic ones added.")
    page.text(*remarks, *differences(settings, settings["dataset"]))
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


def _best(record: Mapping[str, Any]) -> str:
    gain = record["dice"]["gain"]
    more = f"{gain['difference']:+.3f} against none{in_words(gain.get('over_seeds'))}"
    return f"Best with {record['asked']} synthetic images: {_spread(record['dice'])}, {more}."


def _curve(records: Sequence[Mapping[str, Any]], seed: int) -> tuple[list[float], list[float]]:
    points = [(float(r["asked"]), r["dice"]["per_seed"][r["seeds"].index(seed)]) for r in records if seed in r["seeds"]]
    return [x for x, _ in points], [y for _, y in points]
