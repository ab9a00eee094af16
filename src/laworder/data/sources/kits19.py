"""KiTS19: CT volumes with kidneys (1) and tumours (2) → axial slices.

The paper's 5003 + 531 = 5534 slices are the axial slices with at least 50 tumour pixels at native resolution, over the
210 labelled cases. Which cases gave the 531 is not stated: here a seed orders the cases, and the first of them whose
slices add up to 531 exactly are held out (`held_out_cases`); `dataset.json` lists the slices. Cases are never torn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8

from laworder.config import option
from laworder.data.pairs import Pair
from laworder.data.sources.ct_painter import paint_slice
from laworder.data.sources.images import shown
from laworder.data.sources.raw import Item, Raw, Record, Unit
from laworder.data.sources.volumes import (
    Volume,
    at_spacing,
    labels,
    open_volume,
    parse_window,
    read_volume,
    same_space,
    windowed,
)
from laworder.errors import UserError

KIDNEY, TUMOUR = 1, 2
PAPER_SLICES, PAPER_HELD_OUT = 5534, 531
IMAGING, SEGMENTATION = "imaging.nii.gz", "segmentation.nii.gz"
LICENCE = "KiTS19: CC BY-NC-SA 4.0 (no commercial use; share alike); cite the challenge"
Label = Literal["tumour", "kidney+tumour", "classes"]


@dataclass(frozen=True, kw_only=True)
class KitsRule:
    """Which slices become pairs, and how. The defaults are the paper's, as far as it states them."""

    window: str = option("abdomen", "what is black and what white, by name or as two numbers: -160,240", unit="HU")
    label: Label = option("tumour", "what the mask shows; classes: 1 tumour, 2 kidney")
    min_pixels: int = option(50, "tumour pixels that a slice must have, at native resolution", minimum=0)
    spacing: float | None = option(None, "resample slices to this pixel size", unit="mm", above=0)
    seed: int = option(0, "of the choice of cases that are held out", minimum=0)
    imaging: Literal["real", "painted"] = option("real", "painted draws CT values from the labels, to try things out")


CLASSES: dict[Label, tuple[str, ...]] = {
    "tumour": ("background", "tumour"),
    "kidney+tumour": ("background", "kidney or tumour"),
    "classes": ("background", "tumour", "kidney"),
}


def kits19(folder: Path | str, rule: KitsRule | None = None) -> Raw:
    """The cases in `folder` (case_00000 …), or in a folder inside it, as the challenge's repository has them."""
    rule = rule or KitsRule()
    low, high = parse_window(rule.window)
    units, unlabelled = _cases(Path(folder), rule)

    def read(unit: Unit) -> Iterator[Item]:
        return _slices(unit, rule, (low, high))

    notes = [f"{unlabelled} cases without labels are left out"] if unlabelled else []
    if rule.imaging == "painted":
        notes.append("CT values are painted from the labels: no statement about patients can rest on these images")
    return Raw(
        name="kits19",
        source="kits19",
        licence=LICENCE,
        classes=CLASSES[rule.label],
        rules={
            "window": [low, high],
            "label": rule.label,
            "min_pixels": rule.min_pixels,
            "spacing": rule.spacing,
            "seed": rule.seed,
            "imaging": rule.imaging,
        },
        units=units,
        read=read,
        pools=lambda records: _pools(records, rule.seed),
        notes=tuple(notes),
        lesion=(1,) if rule.label == "classes" else None,
    )


def _cases(folder: Path, rule: KitsRule) -> tuple[list[Unit], int]:
    """A unit for each labelled case, and how many cases have no labels (the challenge's test cases)."""
    if not folder.is_dir():
        raise UserError(f"{shown(folder)}: {'not a folder' if folder.exists() else 'no such folder'}")
    places = [folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())]
    found = next((cases for place in places if (cases := _case_folders(place))), [])
    labelled = [case for case in found if (case / SEGMENTATION).is_file()]
    if not labelled:
        raise UserError(f"{shown(folder)}: no KiTS19 data; expected case_00000/{SEGMENTATION} and so on in it")
    if rule.imaging == "real":
        missing = [case.name for case in labelled if not (case / IMAGING).is_file()]
        if missing:
            raise UserError(
                f"{shown(folder)}: {len(missing)} of {len(labelled)} cases have no {IMAGING}: {in_ranges(missing)}; "
                "fetch the CT volumes as the challenge describes (they come apart from the labels), or try things out "
                "with --kits19.imaging painted"
            )
    names = (SEGMENTATION, IMAGING) if rule.imaging == "real" else (SEGMENTATION,)
    units = [Unit(case.name, tuple(case / name for name in names), case.name) for case in labelled]
    return units, len(found) - len(labelled)


def _case_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.glob("case_*") if re.fullmatch(r"case_\d+", entry.name) and entry.is_dir())


def in_ranges(names: Sequence[str]) -> str:
    """case_00000–case_00003, case_00007: all of them named, and still one line."""
    runs: list[list[str]] = []
    for name in names:
        if runs and int(name.rpartition("_")[2]) == int(runs[-1][-1].rpartition("_")[2]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def read_labels(volume: Volume) -> UInt8[np.ndarray, "slices rows columns"]:
    """The label volume of a case in axial position."""
    return read_volume(volume, labels(volume.path, TUMOUR))


def tumour_slices(seen: UInt8[np.ndarray, "slices rows columns"], min_pixels: int) -> list[int]:
    """The axial slices that the rule takes."""
    return np.flatnonzero(np.count_nonzero(seen == TUMOUR, axis=(1, 2)) >= min_pixels).tolist()


def _slices(unit: Unit, rule: KitsRule, window: tuple[float, float]) -> Iterator[Item]:
    volume = open_volume(unit.files[0])
    seen = read_labels(volume)
    taken = tumour_slices(seen, rule.min_pixels)
    if not taken:
        return
    image_of = _painted(unit, seen, window) if rule.imaging == "painted" else _scanned(unit, volume, window)
    for index in taken:
        image, mask = image_of(index), _mask(seen[index], rule.label)
        spacing = volume.spacing[1:]
        if rule.spacing is not None:
            image, mask = at_spacing(image, mask, spacing, rule.spacing)
            spacing = (rule.spacing, rule.spacing)
        extra = {"case": unit.key, "slice": index, "spacing_mm": [round(mm, 6) for mm in spacing]}
        pair = Pair(image=image[..., None], mask=mask, name=f"{unit.key}-{index:04d}", group=unit.key)
        yield Item(pair, {**extra, "slice_mm": round(volume.spacing[0], 6)})


def _scanned(unit: Unit, seen: Volume, window: tuple[float, float]) -> Callable[[int], UInt8[np.ndarray, "h w"]]:
    scan = open_volume(unit.files[1])
    same_space(scan, seen)
    images = read_volume(scan, windowed(*window))
    return lambda index: np.ascontiguousarray(images[index])


def _painted(
    unit: Unit, seen: UInt8[np.ndarray, "slices rows columns"], window: tuple[float, float]
) -> Callable[[int], UInt8[np.ndarray, "h w"]]:
    return lambda index: windowed(*window)(paint_slice(seen[index], key=f"{unit.key}:{index}"))


def _mask(seen: UInt8[np.ndarray, "h w"], label: Label) -> UInt8[np.ndarray, "h w"]:
    meaning = {"tumour": (0, 0, 1), "kidney+tumour": (0, 1, 1), "classes": (0, 2, 1)}[label]
    return np.array(meaning, dtype=np.uint8)[seen]


def _pools(records: Sequence[Record], seed: int) -> dict[str, list[str]]:
    """`law` for training and validation, `law-test` held out; whole cases, 531 slices of the paper's 5534."""
    sizes: dict[str, int] = {}
    for record in records:
        sizes[record["case"]] = sizes.get(record["case"], 0) + 1
    held = set(held_out_cases(sizes, round(len(records) * PAPER_HELD_OUT / PAPER_SLICES), seed))
    law = [record["name"] for record in records if record["case"] not in held]
    test = [record["name"] for record in records if record["case"] in held]
    return {"law": law, "law-test": test} if law and test else {"law": law + test}


def held_out_cases(sizes: Mapping[str, int], wanted: int, seed: int) -> list[str]:
    """Cases whose slices add up to `wanted`, or to the nearest sum that whole cases can give.

    The cases are ordered by SHA-256 of (seed, case). Going through them in that order, each is taken if what is then
    still wanted can be made up exactly from later ones: the first set in that order, not a random subset sum.
    """
    order = sorted(sizes, key=lambda case: hashlib.sha256(f"{seed}\0{case}".encode()).digest())
    # reach[i]: bit s is set where cases i, i+1 … can add up to s.
    reach = [1]
    for case in reversed(order):
        reach.insert(0, reach[0] | reach[0] << sizes[case])
    sums = [s for s in range(sum(sizes.values()) + 1) if reach[0] >> s & 1]
    left = min(sums, key=lambda s: (abs(s - wanted), s))
    held: list[str] = []
    for index, case in enumerate(order):
        if sizes[case] <= left and reach[index + 1] >> (left - sizes[case]) & 1:
            held.append(case)
            left -= sizes[case]
    return held
