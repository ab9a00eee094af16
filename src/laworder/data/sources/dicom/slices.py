"""DICOM files → slices, and slices of one series, space, size and direction → stacks, in the order of their positions.

Of each file only its header is read, and of that only what is needed to place it: thousands of files are held at once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laworder.data.sources.dicom.geometry import PARALLEL, Plane, View, plane_of, view_of
from laworder.data.sources.dicom.header import Frame, check_length, damage, damaged, frames_of
from laworder.data.sources.dicom.quiet import quiet
from laworder.data.sources.images import shown

# Modalities that may be named in what is written: codes of PS3.16 CID 29, and nothing that somebody typed.
MODALITIES = frozenset(
    {
        "AR", "BDUS", "BI", "BMD", "CR", "CT", "DG", "DX", "ECG", "EPS", "ES", "GM", "HC", "HD", "IO", "IVOCT", "IVUS",
        "LS", "MG", "MR", "NM", "OAM", "OCT", "OP", "OPM", "OPT", "OPTBSV", "OPTENF", "OPV", "OT", "PA", "POS", "PT",
        "PX", "RF", "RG", "RTIMAGE", "SC", "SM", "SRF", "TG", "US", "VA", "XA", "XC",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slice:
    """One frame of one file.

    frame: from 0
    uid: of the instance; never written anywhere
    space: its frame of reference, empty where it has none
    """

    path: Path
    frame: int
    uid: str
    plane: Plane | None
    space: str
    rows: int
    columns: int
    number: int = 0
    thickness: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        return self.uid, self.frame


@dataclass(frozen=True, slots=True)
class Instance:
    """One image file. The patient is who PatientID says, whoever issued it: two taken for one do a split less harm
    than one taken for two. Where there is no ID, the patient is the study."""

    path: Path
    patient: tuple[str, str]
    named: bool
    series: str
    modality: str
    burned_in: bool
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Stack:
    """Slices of one series and frame of reference that lie alike, in the order in which they are counted."""

    patient: tuple[str, str]
    series: str
    modality: str
    view: View
    slices: tuple[Slice, ...] = field(repr=False)

    @property
    def rank(self) -> str:
        """Orders stacks and patients, and says nothing about them: see `pseudonyms`."""
        return min(hashlib.sha256(uid.encode()).hexdigest() for uid in {s.uid for s in self.slices})

    @property
    def step(self) -> float:
        """Millimetres from slice to slice, the usual ones; 0 where it is not known."""
        places = sorted({round(self.view.place(s.plane), 4) for s in self.slices if s.plane is not None})
        return float(np.median(np.diff(places))) if len(places) > 1 else self.slices[0].thickness


def read_instance(path: Path, header: Any) -> Instance:
    """What is needed of an image's header; UserError where it is damaged."""
    check_length(path, header)
    try:
        with quiet():
            named = str(header.get("PatientID") or "").strip()
            modality = str(header.get("Modality") or "")
            return Instance(
                path=path,
                patient=("ID", named) if named else ("study", str(header.StudyInstanceUID)),
                named=bool(named),
                series=str(header.SeriesInstanceUID),
                modality=modality if modality in MODALITIES else "OT",
                burned_in=str(header.get("BurnedInAnnotation") or "").strip().upper() == "YES",
                slices=tuple(_slice(path, header, k) for k in range(frames_of(header))),
            )
    except damage() as error:
        raise damaged(path, error, "image") from error


def _slice(path: Path, header: Any, index: int) -> Slice:
    frame = Frame(header, index)
    return Slice(
        path=path,
        frame=index,
        uid=str(header.SOPInstanceUID),
        plane=plane_of(frame),
        space=str(header.get("FrameOfReferenceUID") or ""),
        rows=int(header.Rows),
        columns=int(header.Columns),
        number=int(header.get("InstanceNumber") or 0),
        thickness=float(frame.get("PixelMeasuresSequence", "SliceThickness") or 0),
    )


def stacks_of(instances: Sequence[Instance]) -> tuple[list[Stack], list[str]]:
    """All stacks, and a line for each image that is there twice."""
    groups: dict[tuple[Any, ...], list[Slice]] = defaultdict(list)
    kinds: dict[tuple[Any, ...], Instance] = {}
    directions: dict[tuple[Any, ...], list[Plane | None]] = defaultdict(list)
    for instance in sorted(instances, key=lambda i: i.slices[0].uid):
        for one in instance.slices:
            grid = (instance.patient, instance.series, one.space, one.rows, one.columns)
            key = (*grid, _alike(one.plane, directions[grid]))
            groups[key].append(one)
            kinds.setdefault(key, instance)
    return [_stack(kinds[key], found) for key, found in groups.items()], _twice(instances)


def _alike(plane: Plane | None, known: list[Plane | None]) -> int:
    """The number of the first known plane that is turned like a plane, which becomes known if there is none."""
    for number, other in enumerate(known):
        if plane is None or other is None:
            if plane is other:
                return number
        elif min(np.dot(plane.across, other.across), np.dot(plane.down, other.down)) >= PARALLEL:
            return number
    known.append(plane)
    return len(known) - 1


def _twice(instances: Sequence[Instance]) -> list[str]:
    files: dict[str, list[Path]] = defaultdict(list)
    for instance in instances:
        files[instance.slices[0].uid].append(instance.path)
    several = [sorted(found) for found in files.values() if len(found) > 1]
    return [f"{', '.join(map(shown, found))}: one image {len(found)} times; keep one" for found in several]


def _stack(instance: Instance, found: list[Slice]) -> Stack:
    view = view_of(found[0].plane)
    ordered = sorted(found, key=lambda s: (round(view.place(s.plane), 4), s.number, s.frame, s.uid))
    return Stack(instance.patient, instance.series, instance.modality, view, tuple(ordered))
