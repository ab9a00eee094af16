"""What data are, wherever they lie: one hash over their content."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from laworder.data.load import source_hash
from laworder.data.opening import Phantom, open_source
from laworder.data.prepared import INDEX, PreparedSource
from laworder.runs import sha256_file


def fingerprint(argument: str) -> str:
    """SHA-256 of FOLDER or FOLDER:POOL.

    Prepared data carry the hash of every file; only files that are newer than their index are read again.
    """
    return _fingerprint(argument, _stamps(argument))


@lru_cache(maxsize=64)
def _fingerprint(argument: str, stamps: int) -> str:  # noqa: ARG001 (part of the key: changed files count anew)
    source = open_source(argument, masks=None, size=64, phantom=Phantom())
    if not isinstance(source, PreparedSource):
        return source_hash(source)
    written = (source.folder / INDEX).stat().st_mtime
    lines = [_line(source, index, written) for index in range(len(source))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _line(source: PreparedSource, index: int, written: float) -> str:
    record: dict[str, Any] = dict(source.records[index])
    for file, key in zip(source.files(index), ("image_sha256", "mask_sha256"), strict=True):
        if not file.is_file():
            record[key] = "missing"
        elif file.stat().st_mtime > written:
            record[key] = sha256_file(file)
    return json.dumps({key: record[key] for key in ("name", "group", "image_sha256", "mask_sha256")})


def files_hash(argument: str) -> str:
    """SHA-256 over the files of a folder, or of a file; what is neither is a hub id and stands for itself."""
    path = Path(argument).expanduser()
    if not path.exists():
        return argument
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    lines = [f"{file.relative_to(path)} {sha256_file(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _stamps(argument: str) -> int:
    """One number over place, size and time of every file in the folder: it changes when any of them does."""
    folder = Path(argument).expanduser()
    if not folder.exists():
        folder = Path(argument.rpartition(":")[0]).expanduser()
    files = sorted(folder.rglob("*")) if folder.is_dir() else []
    known = [(str(path), path.stat()) for path in files if path.is_file()]
    return hash(tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in known))
