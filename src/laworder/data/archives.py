"""Unpack a .zip or .tar.* without letting it write anywhere else, or more than it should.

Every entry is looked at before the first byte is written. Refused, by name:

- absolute paths, drive letters and `..`;
- links of both kinds, devices, pipes and sparse files;
- entries that expand by more than `MAX_RATIO` (a bomb), and archives that do so as a whole;
- two entries of one name (in capitals or not), a file that is also a folder, passwords, and names that are empty or
  longer than file systems take.

What an archive says about its sizes is not believed: the bytes are counted again while they are written.
"""

from __future__ import annotations

import calendar
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from laworder.data.sources.images import shown
from laworder.errors import UserError
from laworder.runs import Progress, WriteError

MAX_RATIO = 100
SMALL = 1 << 16
"""Entries up to this size are no bombs, however well they are packed: an empty mask, for one. Their sum may be."""

LONGEST = 255
"""Bytes that file systems take for a name."""

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
_WHOLE = "unpacked"


@dataclass(frozen=True)
class _Entry:
    """A file in an archive."""

    name: str
    size: int
    time: int
    open: Callable[[], IO[bytes]]


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of an archive which can be read."""
    return path.is_file() and path.name.lower().endswith(SUFFIXES)


def unpack(archive: Path, to: Path) -> Path:
    """Unpack into the folder `to`, which appears only when it is whole, and return it.

    A second call with the same archive finds it there; what an interrupted one left is removed.
    """
    facts = archive.stat()
    seal = f"{archive.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    mark = to / _WHOLE
    if mark.is_file() and mark.read_text(encoding="utf-8", errors="surrogateescape") == seal:
        return to / "content"
    partial = to.with_name(f"{to.name}.partial")
    for left in (to, partial):
        if left.exists():
            shutil.rmtree(left)
    with _opened(archive) as look:
        total = _check(archive, look())
    try:
        (partial / "content").mkdir(parents=True)
        with _opened(archive) as look, Progress(total=total, desc="unpacking", unit="B", unit_scale=True) as bar:
            for entry in look():
                bar.update(_write(archive, entry, partial / "content"))
        (partial / _WHOLE).write_text(seal, encoding="utf-8", errors="surrogateescape")
        partial.rename(to)
    except OSError as error:
        raise WriteError(f"cannot unpack {shown(archive)} to {shown(to)}: {error.strerror or error}") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial)
    return to / "content"


@contextmanager
def _opened(archive: Path) -> Iterator[Callable[[], Iterator[_Entry]]]:
    """The entries of an archive, in its order; whatever is wrong with it is a UserError."""
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as file:
                yield lambda: _zip_entries(archive, file)
        else:
            with tarfile.open(archive) as file:
                yield lambda: _tar_entries(archive, file)
    except UserError:
        raise
    except _DAMAGED as error:
        words = shown(" ".join(str(error).split())[:120]) or type(error).__name__
        raise UserError(f"{shown(archive)}: not a sound archive ({words}); fetch it again") from error


def _zip_entries(archive: Path, file: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in file.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            _refuse(archive, info.filename, "is a link or a device")
        if info.flag_bits & 1:
            _refuse(archive, info.filename, "is locked with a password")
        _check_name(archive, info.filename)
        if info.filename.endswith("/"):
            continue
        if info.file_size > max(SMALL, MAX_RATIO * info.compress_size):
            _refuse(archive, info.filename, f"expands from {info.compress_size:,} to {info.file_size:,} bytes")
        time = calendar.timegm((*info.date_time, 0, 0, 0))
        yield _Entry(info.filename, info.file_size, time, lambda info=info: file.open(info))


def _tar_entries(archive: Path, file: tarfile.TarFile) -> Iterator[_Entry]:
    for info in file:
        if info.isdir():
            _check_name(archive, info.name)
            continue
        if not info.isfile() or info.issparse():
            _refuse(archive, info.name, "is a link, a device or a sparse file")

        def content(info: tarfile.TarInfo = info) -> IO[bytes]:
            found = file.extractfile(info)
            assert found is not None, "a regular file has content"
            return found

        yield _Entry(info.name, info.size, int(info.mtime), content)
    # tarfile takes a damaged header, or none, for the end, and would lose what follows without a word.
    assert file.fileobj is not None, "it was opened by name"
    file.fileobj.seek(file.offset)
    if file.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"cut short, or damaged at {file.offset:,}")


def _check(archive: Path, entries: Iterator[_Entry]) -> int:
    """Look at every entry; the total size."""
    allowed, total = max(SMALL, MAX_RATIO * archive.stat().st_size), 0
    seen: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        path = _check_name(archive, entry.name)
        if not path.parts:
            _refuse(archive, entry.name, "has no name")
        folded = PurePosixPath(str(path).casefold())
        above = {str(parent) for parent in folded.parents}
        if str(folded) in seen:
            _refuse(archive, entry.name, "is in it twice")
        if str(folded) in folders or not seen.isdisjoint(above):
            _refuse(archive, entry.name, "is a file and a folder at once, or lies in a file")
        seen.add(str(folded))
        folders |= above
        total += entry.size
        if total > allowed:
            _refuse(archive, entry.name, f"brings the whole to more than {MAX_RATIO} times the archive's size")
    if not seen:
        raise UserError(f"{shown(archive)}: holds no files")
    return total


def _check_name(archive: Path, name: str) -> PurePosixPath:
    plain = name.replace("\\", "/")
    path = PurePosixPath(plain)
    if plain.startswith("/") or re.match(r"[A-Za-z]:", plain) or ".." in path.parts or "\0" in plain:
        _refuse(archive, name, "would be written outside the folder")
    if any(len(part.encode("utf-8", "surrogateescape")) > LONGEST for part in path.parts):
        _refuse(archive, name, f"has a name of more than {LONGEST} bytes")
    return path


def _refuse(archive: Path, name: str, why: str) -> None:
    raise UserError(
        f"{shown(archive)}: its entry {shown(name)!r} {why}; nothing was written; if you trust it, unpack it yourself"
    )


def _write(archive: Path, entry: _Entry, folder: Path) -> int:
    """One entry to its place below `folder`; the number of bytes."""
    target = folder.joinpath(*_check_name(archive, entry.name).parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with entry.open() as source, target.open("xb") as sink:
        while piece := source.read(1 << 20):
            written += len(piece)
            if written > entry.size:
                raise UserError(
                    f"{shown(archive)}: its entry {shown(entry.name)!r} is larger than it says; fetch it again"
                )
            sink.write(piece)
    if written < entry.size:
        raise UserError(f"{shown(archive)}: its entry {shown(entry.name)!r} is cut short; fetch it again")
    # The time tells a later run that the file is the same.
    os.utime(target, (entry.time, entry.time))
    return written
