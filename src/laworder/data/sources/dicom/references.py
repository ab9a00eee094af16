"""Which slice a frame or a contour is drawn on: the one that it names, else the one on which it lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from laworder.data.sources.dicom.geometry import PARALLEL, Plane
from laworder.data.sources.dicom.slices import Slice, Stack
from laworder.data.sources.images import shown

LEAST_REACH = 0.05
"""Millimetres off its slice that are always forgiven: decimals that were rounded."""


@dataclass(frozen=True)
class Reference:
    """What an object says about the slice of one of its frames or contours.

    instances: SOP instance UIDs with a frame number (from 1), or 0 for the whole instance
    around: slices that it may be, where no instance is named; None where the object names none
    """

    instances: tuple[tuple[str, int], ...] = ()
    around: tuple[Slice, ...] | None = None


@dataclass(frozen=True)
class _Table:
    """Slices with a position, side by side."""

    slices: list[Slice]
    origins: Float64[np.ndarray, "n 3"]
    normals: Float64[np.ndarray, "n 3"]
    reaches: Float64[np.ndarray, " n"]
    stacks: Int64[np.ndarray, " n"]


class Slices:
    """All slices of a source, to be found by name and by place."""

    def __init__(self, stacks: Sequence[Stack]) -> None:
        self.by_uid: dict[str, list[Slice]] = defaultdict(list)
        self.by_series: dict[str, list[Slice]] = defaultdict(list)
        self.by_space: dict[str, list[Slice]] = defaultdict(list)
        self._asked: tuple[Sequence[Slice], _Table] | None = None
        self._reach: dict[tuple[str, int], float] = {}
        self._stack: dict[tuple[str, int], int] = {}
        for index, stack in enumerate(stacks):
            reach = max(LEAST_REACH, stack.step / 2)
            for one in stack.slices:
                self.by_uid[one.uid].append(one)
                self.by_series[stack.series].append(one)
                self.by_space[one.space].append(one)
                self._reach[one.key], self._stack[one.key] = reach, index

    def reach(self, one: Slice) -> float:
        """How far from a slice something may lie and still belong to it."""
        return self._reach[one.key]

    def around(self, series: Iterable[tuple[str, Sequence[str]]]) -> tuple[tuple[Slice, ...] | None, list[str]]:
        """The slices of referenced series (of their listed instances, where there are any), and missing UIDs."""
        found: list[Slice] = []
        missing: list[str] = []
        named = False
        for uid, instances in series:
            named = True
            listed = [one for instance in instances for one in self.by_uid.get(instance, [])]
            missing += [instance for instance in instances if instance not in self.by_uid]
            found += listed if instances else self.by_series.get(uid, [])
            missing += [uid] if not instances and uid not in self.by_series else []
        return (tuple(found) if named else None), missing

    def named(self, reference: Reference) -> tuple[list[Slice], bool]:
        """The slices that are named, and whether any image that is named is not here."""
        found: list[Slice] = []
        lost = False
        for uid, number in reference.instances:
            frames = self.by_uid.get(uid, [])
            hits = frames if number == 0 else [one for one in frames if one.frame == number - 1]
            lost = lost or not hits
            found += hits
        return found, lost

    def placed(self, plane: Plane | None, among: Sequence[Slice]) -> list[Slice]:
        """The nearest of the slices that lie where a plane lies: of each stack one, or all that share its place."""
        if plane is None or not among:
            return []
        table = self._table(among)
        away = np.abs(((plane.origin - table.origins) * table.normals).sum(axis=1))
        fits = (np.abs(table.normals @ plane.normal) >= PARALLEL) & (away <= table.reaches)
        found: list[Slice] = []
        for stack in np.unique(table.stacks[fits]):
            mine = np.flatnonzero(fits & (table.stacks == stack))
            best = mine[away[mine].argmin()]
            off = np.abs((table.origins[mine] - table.origins[best]) @ table.normals[best])
            found += [table.slices[k] for k in mine[off <= LEAST_REACH]]
        return found

    def _table(self, among: Sequence[Slice]) -> _Table:
        """The same slices are asked about for every frame of an object."""
        if self._asked is None or self._asked[0] is not among:
            lying = [(one, one.plane) for one in among if one.plane is not None]
            self._asked = (
                among,
                _Table(
                    [one for one, _ in lying],
                    np.array([plane.origin for _, plane in lying]).reshape(-1, 3),
                    np.array([plane.normal for _, plane in lying]).reshape(-1, 3),
                    np.array([self.reach(one) for one, _ in lying]),
                    np.array([self._stack[one.key] for one, _ in lying], dtype=np.int64),
                ),
            )
        return self._asked[1]

    def home(self, reference: Reference, plane: Plane | None, space: str) -> Slice | str:
        """The one slice, or why there is none, as the beginning of a sentence about frames."""
        found, lost = self.named(reference)
        if lost and not found:
            return "name images that are not here"
        among = found or (
            self.by_space.get(space, []) if reference.around is None and space else reference.around or ()
        )
        if len(among) == 1:
            one = among[0]
        else:
            fitting = self.placed(plane, among)
            if len(fitting) != 1:
                return self._why(fitting, plane, among)
            one = fitting[0]
        return self._checked(one, plane, space)

    def _checked(self, one: Slice, plane: Plane | None, space: str) -> Slice | str:
        if space and one.space and space != one.space:
            return "have another frame of reference than the images that they name"
        if plane is not None and one.plane is not None:
            if not one.plane.parallel(plane):
                return "lie across the slices that they name"
            if one.plane.distance(plane) > self.reach(one):
                return "lie elsewhere than the slices that they name"
        return one

    def _why(self, fitting: Sequence[Slice], plane: Plane | None, among: Sequence[Slice]) -> str:
        if fitting:
            several = len({self._stack[one.key] for one in fitting}) > 1
            return f"lie on slices {'of several series' if several else 'that share a place'} and name none of them"
        if plane is None:
            return f"{'name several slices and' if among else 'name no slice and'} have no position"
        return "name no slice, and lie on none"


@dataclass
class Complaints:
    """What is wrong with one object, gathered by kind: one line for all frames with the same fault."""

    path: Path
    found: dict[str, list[int]] = field(default_factory=dict)

    def add(self, why: str, number: int) -> None:
        self.found.setdefault(why, []).append(number)

    def lines(self, what: str) -> list[str]:
        return [f"{shown(self.path)}: {_counted(numbers, what)} {why}" for why, numbers in self.found.items()]


def _counted(numbers: Sequence[int], what: str) -> str:
    first = ", ".join(str(number) for number in numbers[:5]) + (", …" if len(numbers) > 5 else "")
    return f"{len(numbers)} of its {what} ({first})"


def series_references(items: Any, series: str, instances: str) -> list[tuple[str, list[str]]]:
    """Series that a sequence names, each with the instances that are listed for it."""
    return [
        (str(item.get(series) or ""), [str(one.ReferencedSOPInstanceUID) for one in item.get(instances) or ()])
        for item in items or ()
    ]
