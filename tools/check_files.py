"""Checks that need no library: text ends in one newline, has no trailing spaces or merge marks, and no file is large.

    python tools/check_files.py FILE...

Run by pre-commit on what is about to be committed. It changes nothing; it names file and line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST = 512 * 1024  # bytes; weights and data do not belong in the repository
VERBATIM = {".svg", ".patch"}
MERGE_MARK = re.compile(rb"(<{7}|>{7}) ")


def faults(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    if len(data) > LARGEST:
        yield f"{path}: {len(data) // 1024} KiB, more than {LARGEST // 1024}"
    if not data or b"\0" in data or path.suffix in VERBATIM:
        return
    if not data.endswith(b"\n") or data.endswith(b"\n\n"):
        yield f"{path}: should end in exactly one newline"
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line != line.rstrip():
            yield f"{path}:{number}: trailing space"
        if MERGE_MARK.match(line):
            yield f"{path}:{number}: a merge mark"


def main(names: list[str]) -> int:
    found = [fault for name in names for fault in faults(Path(name))]
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
