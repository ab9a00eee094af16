"""Files that are either the old one or the new one, never half of one."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from pathlib import Path

from laworder.errors import UserError

PARTIAL = ".partial"
"""Ending of a file that is still being written. What a killed process leaves behind is swept at the next start."""


class WriteError(UserError):
    """The operating system refused to write: disk full, quota, permission."""


def partial_name(path: Path) -> Path:
    """A name beside `path` (the same file system, so that the rename is atomic) that nobody else uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")


def fsync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    if sys.platform == "win32":  # which has no such call, and no need of it
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(path: str | Path, content: bytes | str) -> None:
    """Write `path` whole or not at all: temporary name in the same folder, fsync, rename, fsync of the folder."""
    path = Path(path)
    partial = partial_name(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        fsync_folder(path.parent)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}; the file as it was before is untouched") from error
    finally:
        partial.unlink(missing_ok=True)


def sweep(folder: Path) -> list[Path]:
    """Remove what killed writers left in `folder`. Only the holder of the run's lock may call it."""
    leftovers = sorted(folder.glob(f".*{PARTIAL}"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return leftovers


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, read in pieces, as hex."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
