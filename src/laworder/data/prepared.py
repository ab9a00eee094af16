"""The one layout of prepared data, and the source that reads it.

    FOLDER/dataset.json        source, rules, licence, classes, counts, pools, and a line for every pair
    FOLDER/images/<name>.png   8-bit gray or RGB
    FOLDER/masks/<name>.png    8-bit class indices: 0 background, 1 lesion, 2 … further classes

`dataset.json` is written last, so that a folder that has one is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laworder.data.pairs import Pair
from laworder.data.parallel import over_cores
from laworder.data.sources.images import open_picture, read_image, shown
from laworder.errors import UserError, nearest
from laworder.runs import atomic_write, sha256_file

FORMAT = 1
INDEX = "dataset.json"
IMAGES, MASKS = "images", "masks"
_SAFE = re.compile(r"[^/\\\x00.][^/\\\x00]*")


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds finished prepared data."""
    return (folder / INDEX).is_file()


def write_index(
    folder: Path, head: Mapping[str, Any], pools: Mapping[str, Sequence[str]], pairs: Iterable[Any]
) -> None:
    """`dataset.json`, a line for each pair, so that people and `diff` can read it too."""
    top = [f" {json.dumps(key)}: {_line(value)}" for key, value in {"format": FORMAT, **head}.items()]
    named = ",\n".join(f"  {json.dumps(pool)}: {_line(list(names))}" for pool, names in pools.items())
    listed = ",\n".join("  " + _line(pair) for pair in pairs)
    body = [*top, ' "pools": {' + (f"\n{named}\n }}" if named else "}"), f' "pairs": [\n{listed}\n ]']
    atomic_write(folder / INDEX, "{\n" + ",\n".join(body) + "\n}\n")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_index(folder: Path) -> dict[str, Any]:
    """`dataset.json`, checked."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{shown(folder)}: no prepared data: {INDEX} is missing; see `laworder data prepare`") from None
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{shown(path)}: not JSON ({error}); prepare the data anew") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise UserError(f"{shown(path)}: not of format {FORMAT}, which this version reads; prepare the data anew")
    pairs, pools = index.get("pairs"), index.get("pools", {})
    if not isinstance(pairs, list) or not pairs or not all(_sound(pair) for pair in pairs):
        raise UserError(f"{shown(path)}: its list of pairs is damaged; prepare the data anew")
    if not isinstance(pools, dict) or not all(isinstance(names, list) for names in pools.values()):
        raise UserError(f"{shown(path)}: its pools are damaged; prepare the data anew")
    return index


def _sound(pair: Any) -> bool:
    """Whether a line of the index can be trusted: above all that its name leads nowhere else."""
    if not isinstance(pair, dict):
        return False
    texts = all(isinstance(pair.get(key), str) for key in ("name", "group", "image_sha256", "mask_sha256"))
    numbers = all(isinstance(pair.get(key), int) for key in ("width", "height", "lesion_pixels"))
    return texts and numbers and _SAFE.fullmatch(pair["name"]) is not None


class PreparedSource:
    """Prepared pairs behind the `Source` protocol.

    folder: what `laworder data prepare` wrote
    pool: one of its named pools; all pairs where None
    verify: compare every file with its hash first, and name all that differ in one error
    """

    def __init__(self, folder: Path | str, pool: str | None = None, *, verify: bool = False) -> None:
        self.folder = Path(folder)
        index = read_index(self.folder)
        self.pools: dict[str, list[str]] = index["pools"]
        self.classes: list[str] = index.get("classes", [])
        self.records: list[dict[str, Any]] = index["pairs"]
        if pool is not None:
            self.records = self._pool(pool)
        self.names: list[str] = [record["name"] for record in self.records]
        self.groups: list[str] = [record["group"] for record in self.records]
        if verify:
            self._verify()

    def __len__(self) -> int:
        return len(self.records)

    def read(self, index: int) -> Pair:
        """Decode pair `index`; UserError names the file when that fails."""
        record = self.records[index]
        image_file, mask_file = self.files(index)
        image = read_image(image_file)
        mask = np.array(open_picture(mask_file)[0])
        size = (record["height"], record["width"])
        for file, pixels in ((image_file, image), (mask_file, mask)):
            if pixels.shape[:2] != size or pixels.dtype != np.uint8:
                raise UserError(f"{shown(file)}: not the {size[1]}×{size[0]} picture that was prepared; do it anew")
        return Pair(image=image, mask=mask, name=record["name"], group=record["group"])

    def files(self, index: int) -> tuple[Path, Path]:
        """Where image and mask of pair `index` lie."""
        name = f"{self.records[index]['name']}.png"
        return self.folder / IMAGES / name, self.folder / MASKS / name

    def lesion_fraction(self, index: int) -> float:
        """The lesion's share of the picture, from the index: nothing is decoded."""
        record = self.records[index]
        return record["lesion_pixels"] / (record["width"] * record["height"])

    def _pool(self, pool: str) -> list[dict[str, Any]]:
        if pool not in self.pools:
            raise UserError(f"{shown(self.folder)}: no pool {pool!r}{nearest(pool, self.pools)}")
        by_name = {record["name"]: record for record in self.records}
        missing = [name for name in self.pools[pool] if name not in by_name]
        if missing:
            raise UserError(f"{shown(self.folder)}: it lacks {missing[0]!r} of its pool {pool!r}; prepare it anew")
        return [by_name[name] for name in self.pools[pool]]

    def _verify(self) -> None:
        wrong: list[list[str]] = [[] for _ in self.records]

        def look(index: int) -> None:
            record = self.records[index]
            for file, key in zip(self.files(index), ("image_sha256", "mask_sha256"), strict=True):
                if file_hash(file) != record[key]:
                    wrong[index].append(f"{shown(file)}: {'changed' if file.is_file() else 'missing'}")

        over_cores(look, len(self), label="verifying")
        lines = [line for found in wrong for line in found]
        if lines:
            head = f"{shown(self.folder)}: {len(lines)} files are not what was prepared; prepare the data anew:"
            raise UserError("\n  ".join([head, *lines]))


def file_hash(path: Path) -> str | None:
    """SHA-256 of a file, None where it cannot be read."""
    try:
        return sha256_file(path)
    except OSError:
        return None
