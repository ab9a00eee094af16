"""Splits on disk: ours, with a fingerprint of the names they were made for, and nnU-Net's `splits_final.json`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from laworder.data.splits import Split
from laworder.errors import UserError

FORMAT = "laworder-split/1"


def names_hash(names: Iterable[str]) -> str:
    """SHA-256 of a set of names, whatever their order."""
    return hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogatepass")).hexdigest()


def write_splits(path: Path | str, splits: Sequence[Split]) -> None:
    """One split, or the folds of a cross-validation, in one JSON file."""
    if not splits:
        raise UserError(f"{path}: there is no split to write")
    first = splits[0]
    content = {
        "format": FORMAT,
        "seed": first.seed,
        "by": first.by,
        "names": len(first.names),
        "names_sha256": names_hash(first.names),
        "splits": [{"train": list(s.train), "val": list(s.val), "test": list(s.test)} for s in splits],
    }
    _write(Path(path), content)


def read_splits(path: Path | str, names: Sequence[str]) -> list[Split]:
    """What `write_splits` wrote, refused where it was made for other data than `names`, or was changed since."""
    content = _load(Path(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: not a split file of ours ({FORMAT}); for nnU-Net's, use read_nnunet")
    seed, by = content.get("seed"), content.get("by")
    splits = [_split(path, entry, seed=seed, by=by) for entry in _entries(path, content.get("splits"))]
    for split in splits:
        if names_hash(split.names) != content.get("names_sha256"):
            raise UserError(f"{path}: its names do not have the hash it states; it was edited: make the split anew")
        _same_names(path, split.names, names)
    return splits


def write_nnunet(path: Path | str, splits: Sequence[Split]) -> None:
    """nnU-Net's `splits_final.json`: a list of {"train": […], "val": […]}; test parts are not in it."""
    _write(Path(path), [{"train": list(s.train), "val": list(s.val)} for s in splits])


def read_nnunet(path: Path | str, names: Sequence[str]) -> list[Split]:
    """Splits from nnU-Net's `splits_final.json`; every name must be in `names`, which may hold more."""
    splits = [_split(path, entry, seed=None, by=None) for entry in _entries(path, _load(Path(path)))]
    here = set(names)
    for split in splits:
        missing = [name for name in split.names if name not in here]
        if missing:
            raise UserError(f"{path}: made for other data: {_some(missing)} are not here")
    return splits


def _same_names(path: Path | str, split: Sequence[str], names: Sequence[str]) -> None:
    gone, new = sorted(set(split) - set(names)), sorted(set(names) - set(split))
    if gone or new:
        wrong = [f"it names {_some(gone)} that the data lacks"] if gone else []
        wrong += [f"the data has {_some(new)} that it lacks"] if new else []
        raise UserError(f"{path}: made for other data: {', and '.join(wrong)}; make the split anew")


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(repr(n) for n in names[:3])
    return f"{listed} and {len(names) - 3} more" if len(names) > 3 else listed


def _entries(path: Path | str, entries: Any) -> list[Any]:
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: holds no list of splits")
    return entries


def _split(path: Path | str, entry: Any, *, seed: Any, by: Any) -> Split:
    parts = [entry.get(part, []) if isinstance(entry, dict) else None for part in ("train", "val", "test")]
    if any(not isinstance(part, list) or not all(isinstance(n, str) for n in part) for part in parts):
        raise UserError(f"{path}: a split must hold lists of names under train and val")
    train, val, test = (tuple(part or ()) for part in parts)
    names = train + val + test
    if not train or not val or len(set(names)) != len(names):
        raise UserError(f"{path}: a split with an empty part, or with a name in two parts")
    known_seed = seed if isinstance(seed, int) else None
    return Split(train=train, val=val, test=test, seed=known_seed, by=by if isinstance(by, str) else None)


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error})") from error


def _write(path: Path, content: Any) -> None:
    """All of it or nothing: a half-written split is a wrong one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
