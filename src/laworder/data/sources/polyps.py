"""Colonoscopy polyps: the PraNet collection, Kvasir-SEG and CVC-ClinicDB as they are downloaded.

    TrainDataset/{image,masks}             900 of Kvasir-SEG and 550 of CVC-ClinicDB      pool train = law
    TestDataset/<set>/{images,masks}       Kvasir, CVC-ClinicDB, CVC-300, ETIS-LaribPolypDB, CVC-ColonDB
    images, masks (JPEG)                   Kvasir-SEG itself, 1000                         pool kvasir-seg
    Original, Ground Truth                 CVC-ClinicDB itself, 612                        pool cvc-clinicdb

The paper trains LAW on `law` (1450) and ORDER on `order` (2026: train, all of ETIS, all of ColonDB); its held-out test
of LAW is `law-test` (Kvasir 100 and ClinicDB 62). Every set may be absent; a pool whose sets are not all there is left
out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from laworder.data.sources.images import shown
from laworder.data.sources.masks import MaskRule
from laworder.data.sources.matching import match
from laworder.data.sources.raw import Item, Raw, Record, Unit, picture_items
from laworder.data.sources.videos import ALIKE, video_starts
from laworder.errors import UserError

# Folder of TestDataset, in lower case → pool, and the number of pairs in the release.
TESTS = {
    "kvasir": ("Kvasir", 100),
    "cvc-clinicdb": ("ClinicDB", 62),
    "cvc-300": ("CVC-300", 60),
    "etis-laribpolypdb": ("ETIS", 196),
    "cvc-colondb": ("ColonDB", 380),
}
VIDEOS = frozenset({"ClinicDB", "CVC-300", "ETIS", "ColonDB", "cvc-clinicdb"})
TRAIN, KVASIR_SEG, CLINIC_DB = "train", "kvasir-seg", "cvc-clinicdb"
SIZES = {TRAIN: 1450, KVASIR_SEG: 1000, CLINIC_DB: 612, **dict(TESTS.values())}
JOINED = {"law": (TRAIN,), "law-test": ("Kvasir", "ClinicDB"), "order": (TRAIN, "ETIS", "ColonDB")}
_IMAGES, _MASKS = ("images", "image", "original"), ("masks", "mask", "ground truth", "ground_truth")
LICENCE = (
    "research and education; the sets' own terms hold (Kvasir-SEG, CVC-ClinicDB, CVC-ColonDB, CVC-300, "
    "ETIS-LaribPolypDB), and each asks to be cited"
)


@dataclass(frozen=True)
class _Set:
    """One set of a download: its pool, and where its images and masks lie."""

    pool: str
    images: Path
    masks: Path


def polyps(folder: Path | str) -> Raw:
    """Whatever of the collection lies in `folder`."""
    root = Path(folder)
    sets = _sets(root)
    if not sets:
        raise UserError(
            f"{shown(root)}: no polyp data; expected TrainDataset and TestDataset (PraNet's layout), or images and "
            "masks (Kvasir-SEG), or Original and 'Ground Truth' (CVC-ClinicDB)"
        )
    units, problems = _units(sets)
    if problems:
        raise UserError("\n  ".join([f"{shown(root)}: {len(problems)} problems; mend or remove them:", *problems]))
    return Raw(
        name="polyps",
        source="polyps",
        licence=LICENCE,
        classes=("background", "polyp"),
        rules={"mask_threshold": 127, "video_threshold": ALIKE},
        units=units,
        read=_read,
        pools=_pools,
        regroup=_regroup,
        notes=tuple(_notes(units)),
        merge_identical=True,
    )


def _read(unit: Unit) -> Iterator[Item]:
    return picture_items(unit, MaskRule())


def _sets(root: Path) -> list[_Set]:
    """Every set in the folder, or in the only folder inside it, as archives are often packed."""
    if not root.is_dir():
        raise UserError(f"{shown(root)}: {'not a folder' if root.exists() else 'no such folder'}")
    found = _pranet(root) + _raw(root)
    if found:
        return found
    inner = _subfolders(root)
    nested = [one for folder in inner.values() for one in _pranet(folder) + _raw(folder)]
    # Kvasir-SEG and CVC-ClinicDB may lie side by side; two copies of one set may not.
    pools = [one.pool for one in nested]
    twice = next((pool for pool in pools if pools.count(pool) > 1), None)
    if twice is not None:
        raise UserError(f"{shown(root)}: holds the set {twice!r} twice; give the folder of one of them")
    return nested


def _subfolders(folder: Path) -> dict[str, Path]:
    return {entry.name.lower(): entry for entry in sorted(folder.iterdir()) if entry.is_dir()}


def _pair_of_folders(folder: Path) -> tuple[Path, Path] | None:
    inside = _subfolders(folder)
    images = next((inside[name] for name in _IMAGES if name in inside), None)
    masks = next((inside[name] for name in _MASKS if name in inside), None)
    return None if images is None or masks is None else (images, masks)


def _pranet(root: Path) -> list[_Set]:
    inside = _subfolders(root)
    found: list[_Set] = []
    if "traindataset" in inside and (pair := _pair_of_folders(inside["traindataset"])):
        found.append(_Set(TRAIN, *pair))
    for name, folder in _subfolders(inside["testdataset"]).items() if "testdataset" in inside else ():
        if name in TESTS and (pair := _pair_of_folders(folder)):
            found.append(_Set(TESTS[name][0], *pair))
    return found


def _raw(root: Path) -> list[_Set]:
    """Kvasir-SEG or CVC-ClinicDB itself; the latter's copies in PNG and TIF are the same pictures: PNG is taken."""
    inside = _subfolders(root)
    for place in (root, *(inside[name] for name in ("png", "tif") if name in inside)):
        pair = _pair_of_folders(place)
        if pair is not None:
            return [_Set(CLINIC_DB if pair[0].name.lower() == "original" else KVASIR_SEG, *pair)]
    return []


def _units(sets: Sequence[_Set]) -> tuple[list[Unit], list[str]]:
    units: list[Unit] = []
    problems: list[str] = []
    for one in sets:
        matches, wrong = match(one.images, one.masks)
        problems += wrong
        sequences = _sequences(one)
        for pair in sorted(matches, key=lambda m: _numbered(m.key)):
            stem = pair.key.replace("/", "_")
            key = f"{one.pool.lower()}-{stem}"
            extra = {"set": one.pool}
            if one.pool == TRAIN:
                extra["origin"] = "CVC-ClinicDB" if stem.isdigit() else "Kvasir-SEG"
            units.append(Unit(key, (pair.image, pair.mask), sequences.get(stem, key), extra))
    return units, problems


def _numbered(key: str) -> tuple[int, str]:
    return (int(key), key) if key.isdigit() else (0, key)


def _sequences(one: _Set) -> dict[str, str]:
    """The video of every frame of CVC-ClinicDB, where its `metadata.csv` lies beside it (frame_id, sequence_id)."""
    places = (one.images.parent / "metadata.csv", one.images.parent.parent / "metadata.csv")
    table = next((place for place in places if place.is_file()), None)
    if one.pool != CLINIC_DB or table is None:
        return {}
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        return {str(int(row["frame_id"])): f"{CLINIC_DB}-sequence-{int(row['sequence_id']):02d}" for row in rows}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{shown(table)}: not a table with whole frame_id and sequence_id ({error})") from error


def _pools(records: Sequence[Record]) -> dict[str, list[str]]:
    """A pool for each set that is there, then the joined ones whose sets are all there."""
    pools: dict[str, list[str]] = {}
    for record in records:
        pools.setdefault(record["set"], []).append(record["name"])
    joined = {
        name: [member for part in parts for member in pools[part]]
        for name, parts in JOINED.items()
        if all(part in pools for part in parts)
    }
    return joined | pools


def _regroup(records: Sequence[Record], images: Path) -> None:
    """The frames of one video get the name of its first as their group: an estimate, see `videos`.

    Kvasir-SEG's pictures are stills, and frames whose video is known keep it.
    """
    frames: dict[str, list[Record]] = {}
    for record in records:
        if record["set"] in VIDEOS or record.get("origin") == "CVC-ClinicDB":
            frames.setdefault(record["set"], []).append(record)
    for members in frames.values():
        alone = [record for record in members if record["group"] == record["name"]]
        group = ""
        for record, starts in zip(alone, video_starts([images / f"{r['name']}.png" for r in alone]), strict=True):
            group = record["name"] if starts else group
            record["group"] = group


def _notes(units: Sequence[Unit]) -> list[str]:
    counts: dict[str, int] = {}
    for unit in units:
        counts[unit.extra["set"]] = counts.get(unit.extra["set"], 0) + 1
    wrong = {pool: count for pool, count in counts.items() if count != SIZES[pool]}
    odd = [f"{pool} has {count} pairs, its release {SIZES[pool]}" for pool, count in wrong.items()]
    lost = [name for name, parts in JOINED.items() if any(part not in counts for part in parts)]
    absent = [f"pools left out, because not all of their sets are here: {', '.join(lost)}"] if lost else []
    frames = (
        "which frames are from one video is not stated in these sets: groups are an estimate from the pictures "
        "(frames in a row that look alike), and a split by group may still tear a video; `laworder data audit` looks "
        "for such leaks"
    )
    return [*odd, *absent, frames]
