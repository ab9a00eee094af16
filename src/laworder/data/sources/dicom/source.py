"""DICOM images, and what is drawn on them, → pairs that say nothing about whom they show.

What is drawn comes from segmentations, structure sets, or mask files. Nothing of a file but its pixels, its geometry
and the code of its modality is written: names, dates, texts, private attributes and UIDs stay behind, and so do the
names of files and folders (see `pseudonyms`). That removes all that PS3.15's basic profile removes from the attributes,
and more. Whether somebody can be recognised in the pixels themselves is not looked at: every preparation says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laworder.config import option
from laworder.data.pairs import Pair
from laworder.data.sources.dicom.files import find_files
from laworder.data.sources.dicom.header import read_header
from laworder.data.sources.dicom.marks import Marks, Opened, Wanted, mask_of
from laworder.data.sources.dicom.maskfiles import add_mask_files
from laworder.data.sources.dicom.pixels import Range, own_range, shown_pixels
from laworder.data.sources.dicom.pseudonyms import Coded, coded
from laworder.data.sources.dicom.references import Slices
from laworder.data.sources.dicom.rtstruct import STRUCTURES, add_structures
from laworder.data.sources.dicom.scan import Contents, scan
from laworder.data.sources.dicom.seg import add_segmentation
from laworder.data.sources.dicom.slices import Slice, Stack, stacks_of
from laworder.data.sources.images import shown
from laworder.data.sources.raw import Item, Raw, Unit
from laworder.data.sources.volumes import parse_window
from laworder.errors import UserError

UNCHECKED = (
    "burned-in text was not checked: names may be written in the pixels themselves, and a face can be put together "
    "from the slices of a head; look at the images before you pass them on"
)


@dataclass(frozen=True, kw_only=True)
class DicomRule:
    """Which slices of DICOM images become pairs, and how."""

    masks: Path | None = option(None, "folder of mask files, where they lie apart from the images")
    segments: tuple[str, ...] = option(
        (), "segments or regions that count: LABEL or LABEL=CLASS, where * is anything: 'GTV*,Cyst=cyst'; all if none"
    )
    window: str | None = option(
        None, "what is black and what white, by name or as two numbers; as the files say, if none"
    )
    min_pixels: int = option(1, "lesion pixels that a slice must have", minimum=0)
    burned_in: bool = option(False, "take images, too, of which the file says that text is burned into them")
    licence: str = option("not stated", "terms of use, to be written down with the data")


def dicom(origin: Path | str, rule: DicomRule | None = None, *, workers: int | None = None) -> Raw:
    """A folder of DICOM files, or the files that a DICOMDIR lists."""
    origin, rule = Path(origin), rule or DicomRule()
    window = None if rule.window is None else parse_window(rule.window)
    wanted = Wanted(rule.segments)
    contents = scan(find_files(origin, rule.masks), workers=workers)
    stacks, marks, notes = _marked(origin, contents, rule, wanted)
    named = {one.uid for i in contents.instances if i.named for one in i.slices}
    if any(stack.slices[0].uid not in named for stack in stacks):
        notes.append("images without a PatientID are grouped by study")
    work = {pair.name: pair for pair in coded(stacks)}
    units = [_unit(pair, marks, wanted) for pair in work.values()]

    def read(unit: Unit) -> Iterator[Item]:
        return _items(work[unit.key], marks, rule, window)

    return Raw(
        name="dicom",
        source="dicom",
        licence=rule.licence,
        classes=wanted.classes,
        rules={
            "segments": "chosen" if wanted.named else "all",
            "window": None if window is None else list(window),
            "min_pixels": rule.min_pixels,
            "burned_in": rule.burned_in,
        },
        units=units,
        read=read,
        notes=(UNCHECKED, *notes),
    )


def _marked(origin: Path, contents: Contents, rule: DicomRule, wanted: Wanted) -> tuple[list[Stack], Marks, list[str]]:
    """The stacks on which something is drawn, what is drawn, and notes; all that does not fit is one error."""
    taken = [i for i in contents.instances if rule.burned_in or not i.burned_in]
    stacks, problems = stacks_of(contents.instances)
    marks: Marks = {}
    lines, passed = _draw(origin, contents, stacks, wanted, marks)
    problems = [*contents.problems, *problems, *lines]
    problems += wanted.problems() if contents.instances and not problems else []
    if problems:
        head = f"{shown(origin)}: {len(problems)} problem{'s' * (len(problems) > 1)}; mend or remove the files:"
        raise UserError("\n  ".join([head, *problems]))
    if not contents.instances:
        others = contents.others + len(contents.objects) + len(contents.masks)
        raise UserError(f"{shown(origin)}: holds no DICOM images ({others} other file{'s' * (others != 1)})")
    kept, left = _kept(stacks, marks, {one.uid for i in taken for one in i.slices})
    if not kept:
        raise UserError(
            f"{shown(origin)}: {len(contents.instances)} DICOM images, and nothing is drawn on any that may be taken: "
            "no segmentation, structure set or mask file that belongs to one"
            + (" (see --dicom.burned-in)" if len(taken) < len(contents.instances) else "")
        )
    notes = [
        f"{count} {what}"
        for count, what in (
            (left, "series on which nothing is drawn are left out"),
            (len(contents.instances) - len(taken), "images that say that text is burned into them are left out"),
            (contents.others + passed, "other files are passed over"),
        )
        if count
    ]
    return kept, marks, notes


def _draw(
    origin: Path, contents: Contents, stacks: Sequence[Stack], wanted: Wanted, marks: Marks
) -> tuple[list[str], int]:
    """Put all that is drawn on the slices; a line for all that is wrong with it, and how many files fit none."""
    if not contents.instances:
        return [], 0
    problems = _objects(contents.objects, stacks, wanted, marks)
    root = origin if origin.is_dir() else origin.parent
    lines, passed = add_mask_files(contents.masks, stacks, root, wanted, marks, unread=contents.unread)
    return [*problems, *lines], passed


def _objects(paths: Sequence[Path], stacks: Sequence[Stack], wanted: Wanted, marks: Marks) -> list[str]:
    """Put segmentations and structure sets on the slices; a line for all that is wrong with them."""
    slices = Slices(stacks)
    problems: list[str] = []
    for path in paths:
        try:
            header = read_header(path, image=False)
            add = add_structures if header.SOPClassUID == STRUCTURES else add_segmentation
            problems += add(path, header, slices, wanted, marks)
        except UserError as error:
            problems.append(str(error))
    return problems


def _kept(stacks: Sequence[Stack], marks: Marks, taken: set[str]) -> tuple[list[Stack], int]:
    """The stacks with something drawn on them, without slices that are not taken; and how many have nothing."""
    kept: list[Stack] = []
    left = 0
    for stack in stacks:
        slices = tuple(one for one in stack.slices if one.uid in taken)
        if not slices:
            continue
        if any(one.key in marks for one in slices):
            kept.append(Stack(stack.patient, stack.series, stack.modality, stack.view, slices))
        else:
            left += 1
    return kept, left


def _unit(pair: Coded, marks: Marks, wanted: Wanted) -> Unit:
    slices = pair.stack.slices
    drawn = {mark.path: None for one in slices for mark in marks.get(one.key, ())}
    files = tuple(dict.fromkeys([*(one.path for one in slices), *drawn]))
    # Names are ranks, and another file can make another series bear this one's. See `pseudonyms`.
    content = " ".join([wanted.content, *(f"{one.uid}:{one.frame}" for one in slices)])
    return Unit(pair.name, files, pair.patient, content=hashlib.sha256(content.encode()).hexdigest())


def _items(pair: Coded, marks: Marks, rule: DicomRule, window: Range | None) -> Iterator[Item]:
    """The pairs of a stack; what cannot be read is one error, when all else is done."""
    stack, opened = pair.stack, Opened()
    digits = max(3, len(str(len(stack.slices) - 1)))
    problems: list[str] = []
    usual: list[Range | None] = [None] if window is not None else []
    for index, one in enumerate(stack.slices):
        if rule.min_pixels and one.key not in marks:
            continue
        try:
            mask = mask_of(one, marks.get(one.key, ()), opened)
            if np.count_nonzero(mask) < rule.min_pixels:
                continue
            if not usual:
                usual.append(own_range([(s.path, s.frame) for s in stack.slices], opened.image))
            image = shown_pixels(one.path, opened.image(one.path), one.frame, window=window, own_range=usual[0])
        except UserError as error:
            problems.append(str(error))
            continue
        pixels = np.ascontiguousarray(stack.view.turned(image)), np.ascontiguousarray(stack.view.turned(mask))
        name = f"{pair.name}-{index:0{digits}d}"
        yield Item(Pair(*pixels, name, pair.patient), _known(pair, one, index))
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))


def _known(pair: Coded, one: Slice, index: int) -> dict[str, Any]:
    """What `dataset.json` says about a slice."""
    stack = pair.stack
    known: dict[str, Any] = {"volume": pair.name, "slice": index, "modality": stack.modality}
    if one.plane is not None:
        known["plane"] = stack.view.name
        known["spacing_mm"] = [round(mm, 6) for mm in stack.view.spacing(one.plane)]
        known["slice_mm"] = round(stack.step, 6)
    return known
