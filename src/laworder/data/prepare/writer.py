"""A raw source → one folder of PNG pairs and `dataset.json`; killed and started again, it finishes.

Everything is written as PNG, JPEG originals too: pixel-exact, and free of whatever a camera wrote into the file beside
the pixels (dates, serial numbers, comments). The price is size: several times that of the JPEG files.

The same input gives the same bytes on the same machine. Across machines the pixels are the same as far as the decoders
are, and the PNG bytes as far as zlib is.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from laworder.data.parallel import over_cores
from laworder.data.prepare.finish import identical_share_groups, summary
from laworder.data.prepare.journal import NAME as JOURNAL
from laworder.data.prepare.journal import Journal, stamp
from laworder.data.prepared import IMAGES, INDEX, MASKS, file_hash, write_index
from laworder.data.sources.images import shown
from laworder.data.sources.raw import Item, Raw, Record, Unit
from laworder.errors import UserError
from laworder.runs import Lock, WriteError

SCRATCH = ".unpacked"
_OURS = frozenset({IMAGES, MASKS, INDEX, JOURNAL, SCRATCH, f"{SCRATCH}.partial", "lock"})


def prepare(raw: Raw, to: Path, *, workers: int | None = None, progress: bool = True) -> dict[str, Any]:
    """Write all pairs of `raw` into the folder `to`; what stands there already and is sound is kept.

    Returns the head of `dataset.json` (source, rules, counts …). Every file that cannot be read is named in one
    UserError, and the sound ones are kept for the next attempt.
    """
    if not raw.units:
        raise UserError(f"{raw.source}: there is nothing to prepare")
    claim(to)
    with Lock(to):
        journal = Journal(to, {"source": raw.source, "rules": dict(raw.rules), "classes": list(raw.classes)})
        try:
            work = _Work(raw, to, journal)
            work.run(workers, "preparing" if progress else None)
            return _finish(raw, to, work.records())
        finally:
            journal.close()


def claim(to: Path) -> None:
    """Make the folder, and refuse one that holds anything that is not ours."""
    try:
        for folder in (to, to / IMAGES, to / MASKS):
            folder.mkdir(parents=True, exist_ok=True)
        strange = sorted(entry.name for entry in to.iterdir() if entry.name not in _OURS)
    except OSError as error:
        raise UserError(f"{shown(to)}: cannot be used as a folder ({error.strerror}); choose another --to") from error
    if strange:
        raise UserError(f"{shown(to)}: holds other files ({shown(strange[0])}, …); choose an empty folder or a new one")


class _Work:
    """The units of a source, those that are done and those that are left."""

    def __init__(self, raw: Raw, to: Path, journal: Journal) -> None:
        self.raw, self.to, self.journal = raw, to, journal
        self.owner: dict[str, str] = {}  # pair's name, folded, → its unit
        self.lock = threading.Lock()
        self.problems: dict[int, list[str]] = {}

    def run(self, workers: int | None, label: str | None) -> None:
        sound = self._sound(workers)
        left = [index for index, fine in enumerate(sound) if not fine]
        if left:
            # From here on the folder is not what its index says.
            (self.to / INDEX).unlink(missing_ok=True)
        over_cores(lambda k: self._unit(left[k]), len(left), workers=workers, label=label)
        lines = [line for index in sorted(self.problems) for line in self.problems[index]]
        if lines:
            count = f"{len(lines)} problem{'s' * (len(lines) > 1)}"
            head = f"{self.raw.source}: {count}; mend or remove the files and run again:"
            raise UserError("\n  ".join([head, *lines]))

    def records(self) -> list[Record]:
        return [record for unit in self.raw.units for record in self.journal.done[unit.key][1]]

    def _sound(self, workers: int | None) -> list[bool]:
        """Which units are in the journal, unchanged since, with all their files as they were written."""
        units, sound = self.raw.units, [False] * len(self.raw.units)

        def look(index: int) -> None:
            entry = self.journal.done.get(units[index].key)
            if entry is not None and entry[0] == stamp(units[index]):
                sound[index] = all(self._intact(record) for record in entry[1])

        if self.journal.done:
            over_cores(look, len(units), workers=workers, label="checking what is there")
        for index, fine in enumerate(sound):
            for record in self.journal.done[units[index].key][1] if fine else ():
                self._own(record["name"], units[index])
        return sound

    def _intact(self, record: Record) -> bool:
        hashes = (file_hash(file) for file in self._files(record["name"]))
        return all(found == record[key] for found, key in zip(hashes, ("image_sha256", "mask_sha256"), strict=True))

    def _files(self, name: str) -> tuple[Path, Path]:
        return self.to / IMAGES / f"{name}.png", self.to / MASKS / f"{name}.png"

    def _own(self, name: str, unit: Unit) -> None:
        """A name belongs to one unit; file systems that ignore case must not mix two up."""
        with self.lock:
            other = self.owner.setdefault(name.casefold(), unit.key)
        if other != unit.key:
            raise UserError(f"{shown(unit.key)}: its pair {name!r} has the name of one of {shown(other)}; rename it")

    def _unit(self, index: int) -> None:
        unit = self.raw.units[index]
        seen = stamp(unit)
        try:
            records = [self._item(item, unit) for item in self.raw.read(unit)]
        except WriteError:
            raise
        except UserError as error:
            self.problems[index] = str(error).split("\n")
            return
        self.journal.add(unit, seen, records)

    def _item(self, item: Item, unit: Unit) -> Record:
        pair = item.pair
        self._own(pair.name, unit)
        pixels = pair.image[..., 0] if pair.image.shape[2] == 1 else pair.image
        hashes = [_save(f, p) for f, p in zip(self._files(pair.name), (pixels, pair.mask), strict=True)]
        height, width = pair.mask.shape
        return {
            "name": pair.name,
            "group": pair.group,
            "width": width,
            "height": height,
            "lesion_pixels": self.raw.lesion_pixels(pair.mask),
            "image_sha256": hashes[0],
            "mask_sha256": hashes[1],
            **item.extra,
        }


def _save(path: Path, pixels: np.ndarray) -> str:
    """Write a PNG and return its hash. The journal says which files are whole: no rename, no fsync for each."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    content = buffer.getvalue()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise WriteError(f"cannot write {shown(path)}: {error.strerror}; start it again to go on") from error
    return hashlib.sha256(content).hexdigest()


def _finish(raw: Raw, to: Path, records: Sequence[Record]) -> dict[str, Any]:
    """Groups, pools, counts and the index; files of pairs that are no longer in the source go."""
    if not records:
        raise UserError(f"{raw.source}: no pair meets the rules ({dict(raw.rules)}); loosen them")
    if raw.regroup is not None:
        raw.regroup(records, to / IMAGES)
    if raw.merge_identical:
        identical_share_groups(records)
    pools = raw.pools(records)
    _remove_strangers(to, {f"{record['name']}.png" for record in records})
    head = {
        "name": raw.name,
        "source": raw.source,
        "rules": dict(raw.rules),
        "licence": raw.licence,
        "notes": list(raw.notes),
        "classes": list(raw.classes),
        "counts": summary(records, pools),
    }
    write_index(to, head, pools, records)
    return head


def _remove_strangers(to: Path, known: set[str]) -> None:
    for folder in (to / IMAGES, to / MASKS):
        with os.scandir(folder) as entries:
            strange = [entry.name for entry in entries if entry.name not in known]
        for name in strange:
            (folder / name).unlink()
