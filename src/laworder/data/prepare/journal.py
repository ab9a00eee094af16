"""What is done already, a line for each unit: a preparation that was killed goes on from here.

The first line says which source and rules the folder belongs to. A unit's line follows when its files are written; a
file without a line counts for nothing. Because a line may outlive its files (a power cut, a tidy colleague), every
line's files are compared with their hashes before they are believed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laworder.data.sources.images import shown
from laworder.data.sources.raw import Record, Unit
from laworder.errors import UserError
from laworder.runs import WriteError

NAME = "journal.jsonl"


def stamp(unit: Unit) -> str:
    """Sizes and times of a unit's files: another stamp means that it has to be read again.

    Hashed, since a unit may have thousands of files, and because the hour of an examination is nobody's business.
    """
    try:
        facts = [file.stat() for file in unit.files]
    except OSError:
        return "missing"
    known = [unit.content, *(f"{fact.st_size}:{fact.st_mtime_ns}" for fact in facts)]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()


class Journal:
    """The journal of one folder. Lines may come from several threads."""

    def __init__(self, folder: Path, head: Mapping[str, Any]) -> None:
        self.path = folder / NAME
        self.head = json.loads(json.dumps(head))
        self.done: dict[str, tuple[str, list[Record]]] = {}
        self._lock = threading.Lock()
        lines = self._lines()
        if lines and lines[0] != self.head:
            raise UserError(
                f"{shown(folder)}: holds data that was prepared from another source or by other rules "
                f"({_difference(lines[0], self.head)}); use another folder, or remove this one"
            )
        for line in lines[1:]:
            self.done[line["unit"]] = (line["stamp"], line["records"])
        self._file = self.path.open("a", encoding="utf-8")
        if not lines:
            self._write(self.head)

    def _lines(self) -> list[Any]:
        """All whole lines; what a killed process left of one is cut off."""
        if not self.path.is_file():
            return []
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise UserError(f"{shown(self.path)}: damaged ({error}); remove it to start anew") from error

    def add(self, unit: Unit, seen: str, records: list[Record]) -> None:
        """A unit is done: its files are written."""
        with self._lock:
            self.done[unit.key] = (seen, records)
            self._write({"unit": unit.key, "stamp": seen, "records": records})

    def _write(self, line: Any) -> None:
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise WriteError(f"cannot write {shown(self.path)}: {error.strerror}; start it again to go on") from error

    def close(self) -> None:
        self._file.close()


def _difference(before: Any, now: Mapping[str, Any]) -> str:
    """What differs between two first lines, in words."""
    if not isinstance(before, dict) or before.get("source") != now["source"]:
        return f"source {before.get('source') if isinstance(before, dict) else '?'}, now {now['source']}"
    old, new = before.get("rules", {}), now["rules"]
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)}, now {new.get(key)}" for key in changed) or "another version"
