"""What is drawn on a slice, from whatever file: a segment's frame, an ROI's contours, a mask file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from laworder.data.sources.dicom.header import read_header
from laworder.data.sources.dicom.slices import Slice
from laworder.data.sources.images import shown
from laworder.data.sources.masks import MAX_CLASSES
from laworder.errors import UserError, nearest

LESION = "lesion"


class Opened:
    """Files that are open while a stack is read: those that hold masks for many slices until its end, others until the
    next of their kind."""

    def __init__(self) -> None:
        self._held: dict[Path, Any] = {}
        self._last: dict[str, tuple[Path, Any]] = {}

    def held(self, path: Path, read: Callable[[], Any]) -> Any:
        """What `read` makes of a file, read once; what it raises, raised again."""
        if path not in self._held:
            try:
                self._held[path] = read()
            except UserError as error:
                self._held[path] = error
        found = self._held[path]
        if isinstance(found, UserError):
            raise found
        return found

    def drawn(self, path: Path) -> Any:
        """The dataset of a segmentation, with its pixels."""
        return self.held(path, lambda: read_header(path, pixels=True))

    def image(self, path: Path, kind: str = "image") -> Any:
        """The dataset of an image, with its pixels."""
        if kind not in self._last or self._last[kind][0] != path:
            self._last[kind] = (path, read_header(path, pixels=True))
        return self._last[kind][1]


@dataclass(frozen=True)
class Mark:
    """Something drawn on one slice.

    path: the file that it comes from
    draw: classes per pixel of the slice as it is stored; 0 where nothing is drawn
    """

    path: Path
    draw: Callable[[Slice, Opened], UInt8[np.ndarray, "h w"]]


Marks = dict[tuple[str, int], list[Mark]]
"""By `Slice.key`."""


def mask_of(one: Slice, marks: Sequence[Mark], opened: Opened) -> UInt8[np.ndarray, "h w"]:
    """All marks of a slice; where two overlap, the class that is named first."""
    mask = np.zeros((one.rows, one.columns), dtype=np.uint8)
    for mark in marks:
        new = mark.draw(one, opened)
        mask = np.where((mask == 0) | ((new > 0) & (new < mask)), new, mask)
    return mask


class Wanted:
    """Which segments count, and as what. All of them, as lesion, where none is chosen.

    What is written down is the user's word for a class, never a label: those are typed by people, about people.

    entries: LABEL or LABEL=CLASS; a label is a segment's or region's name without regard to case, with * for anything,
    or its number. Classes are numbered as they are first named; `lesion` is the class of a label without one.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._patterns: list[tuple[str, str, int]] = []
        names: list[str] = []
        for entry in entries:
            label, _, name = entry.rpartition("=") if "=" in entry else (entry, "", LESION)
            label, name = label.strip(), name.strip()
            if not label or not name:
                raise UserError(f"--dicom.segments: write LABEL or LABEL=CLASS, not {entry!r}")
            names += [name] if name not in names else []
            self._patterns.append((label.casefold(), label, 1 + names.index(name)))
        if len(names) >= MAX_CLASSES:
            raise UserError(f"--dicom.segments: {len(names)} classes, where {MAX_CLASSES - 1} are allowed")
        self.classes = ("background", *(names or [LESION]))
        self._met: set[str] = set()
        self._labels: set[str] = set()

    @property
    def named(self) -> bool:
        """Whether segments are chosen at all."""
        return bool(self._patterns)

    @property
    def content(self) -> str:
        """What is chosen, for a hash."""
        return repr(self._patterns)

    def value(self, number: int, label: str = "") -> int:
        """The class of a segment, 0 where it does not count."""
        label = label.strip()
        self._labels.add(label or str(number))
        return self._value(number, label.casefold()) if self.named else 1

    def _value(self, number: int, label: str) -> int:
        for pattern, _, value in self._patterns:
            if pattern in (label, str(number)) or fnmatchcase(label or str(number), pattern):
                self._met.add(pattern)
                return value
        return 0

    def table(self) -> UInt8[np.ndarray, " 256"] | None:
        """The class of every number that a mask file can hold; None where it is read as lesion or not."""
        if not self.named:
            return None
        return np.array([0, *(self._value(number, "") for number in range(1, 256))], dtype=np.uint8)

    def problems(self) -> list[str]:
        """What is wrong with the choice, now that all segments are known."""
        labels = sorted(self._labels, key=str.casefold)
        if not self.named and len({label.casefold() for label in labels}) > 1:
            listed = ", ".join(map(shown, labels[:8])) + (", …" if len(labels) > 8 else "")
            return [
                f"the segments have {len(labels)} labels ({listed}): say which are lesion with --dicom.segments, as "
                f"{shown(labels[0])!r} or '{shown(labels[0])}=tumour'; '*' takes all"
            ]
        return [
            f"--dicom.segments: no segment or region is named {label!r}{nearest(label, map(shown, labels))}"
            for pattern, label, _ in self._patterns
            if pattern not in self._met
        ]
