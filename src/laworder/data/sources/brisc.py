"""BRISC 2025: contrast-enhanced T1 slices of brain tumours, and of brains without one.

    segmentation_task/{train,test}/{images,masks}          3933 and 860 slices with a tumour mask
    classification_task/{train,test}/no_tumor              1067 and 140 slices without tumour: an empty mask

A file name such as `brisc2025_train_00001_gl_ax_t1` tells the tumour (gl, me, pi, no) and the plane (ax, co, sa). The
paper trains LAW on `law` (3933) and ORDER on `order` (5000) and tests on the same tasks' test parts (860, 1000). The
masks of the release have up to 16 gray levels; above 127 is tumour. There are no patients in the release: each image is
a group by itself, and identical images share one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from laworder.data.sources.images import picture_suffixes, shown
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import match
from laworder.data.sources.raw import Item, Raw, Record, Unit, picture_items
from laworder.errors import UserError

TUMOURS = {"gl": "glioma", "me": "meningioma", "pi": "pituitary", "no": "none"}
PLANES = {"ax": "axial", "co": "coronal", "sa": "sagittal"}
PARTS = ("train", "test")
POOLS = {"train": ("law", "order"), "test": ("law-test", "order-test")}
SIZES = {"law": 3933, "law-test": 860, "order": 5000, "order-test": 1000}
LICENCE = "as stated where BRISC 2025 was downloaded; cite its authors"
_NAME = re.compile(rf"brisc\d+_\w+?_\d+_({'|'.join(TUMOURS)})_({'|'.join(PLANES)})_t\d\w*", re.IGNORECASE)


def brisc(folder: Path | str) -> Raw:
    """Whatever of the two tasks lies in `folder`, or in the only folder inside it."""
    root = _root(Path(folder))
    units: list[Unit] = []
    problems: list[str] = []
    for part in PARTS:
        masked, wrong = _masked(root / "segmentation_task" / part, part)
        healthy = _healthy(root / "classification_task" / part / "no_tumor", part)
        units += [*masked, *healthy]
        problems += wrong
    problems += [f"{shown(u.files[0])}: its name does not tell tumour and plane" for u in units if not u.extra["plane"]]
    if problems:
        raise UserError("\n  ".join([f"{shown(root)}: {len(problems)} problems; mend or remove them:", *problems]))
    return Raw(
        name="brisc",
        source="brisc",
        licence=LICENCE,
        classes=("background", "tumour"),
        rules={"mask_threshold": 127},
        units=units,
        read=_read,
        pools=_pools,
        notes=tuple(_notes(units)),
        merge_identical=True,
    )


def _read(unit: Unit) -> Iterator[Item]:
    return picture_items(unit, MaskRule())


def _root(folder: Path) -> Path:
    if not folder.is_dir():
        raise UserError(f"{shown(folder)}: {'not a folder' if folder.exists() else 'no such folder'}")
    for place in (folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())):
        if any((place / task).is_dir() for task in ("segmentation_task", "classification_task")):
            return place
    raise UserError(f"{shown(folder)}: no BRISC data; expected segmentation_task and classification_task in it")


def _masked(folder: Path, part: str) -> tuple[list[Unit], list[str]]:
    if not folder.is_dir():
        return [], []
    matches, problems = match(folder / "images", folder / "masks")
    return [_unit((pair.image, pair.mask), part) for pair in matches], problems


def _healthy(folder: Path, part: str) -> list[Unit]:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    pictures = [file for file in files if file.suffix.lower() in picture_suffixes() and not file.name.startswith(".")]
    return [_unit((file,), part) for file in pictures]


def _unit(files: tuple[Path, ...], part: str) -> Unit:
    stem = files[0].stem
    told = _NAME.fullmatch(stem)
    tumour, plane = (TUMOURS[told[1].lower()], PLANES[told[2].lower()]) if told else ("", "")
    return Unit(stem, files, stem, {"part": part, "class": tumour, "plane": plane, "masked": len(files) == 2})


def _pools(records: Sequence[Record]) -> dict[str, list[str]]:
    pools: dict[str, list[str]] = {}
    for record in records:
        law, order = POOLS[record["part"]]
        if record["masked"]:
            pools.setdefault(law, []).append(record["name"])
        pools.setdefault(order, []).append(record["name"])
    return {pool: pools[pool] for pool in SIZES if pool in pools}


def _notes(units: Sequence[Unit]) -> list[str]:
    sizes = {
        pool: sum(unit.extra["part"] == part and (unit.extra["masked"] or pool.startswith("order")) for unit in units)
        for part, pools in POOLS.items()
        for pool in pools
    }
    wrong = {pool: size for pool, size in sizes.items() if size != SIZES[pool]}
    odd = [f"pool {pool} has {size} pairs, the paper's {SIZES[pool]}" for pool, size in wrong.items()]
    return [*odd, "the release names no patients: slices of one patient may lie on both sides of a split"]
