"""A folder of anybody's: pictures, NIfTI volumes and TIFF stacks, matched with their masks by name.

Matching and masks are `FolderSource`'s. A volume or a stack yields a pair for each of its slices and is a group by
itself, unless a rule says otherwise. A scan without a window is scaled by its own range (0.05th to 99.95th percentile
of the whole file, so that its slices stay comparable).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from laworder.config import option
from laworder.data.pairs import Pair
from laworder.data.sources.folder import groups_of
from laworder.data.sources.images import deep_to_bytes, image_pixels, is_deep, is_stack, open_frames, shown
from laworder.data.sources.masks import MAX_CLASSES, MaskRule
from laworder.data.sources.matching import match, names_of
from laworder.data.sources.raw import Item, Raw, Unit, picture_items
from laworder.data.sources.volumes import (
    SUFFIXES,
    is_volume,
    labels,
    open_volume,
    parse_window,
    read_volume,
    same_space,
    value_range,
    windowed,
)
from laworder.errors import UserError


@dataclass(frozen=True, kw_only=True)
class FolderRule:
    """How a folder of one's own is read."""

    masks: Path | None = option(None, "folder of the masks, where they lie apart from the images")
    group: str = option("image", "what belongs together: image (or volume), folder, or a pattern such as (case_\\d+)")
    index: bool = option(False, "mask values are class indices, not lesion or no lesion")
    classes: tuple[str, ...] = option(("background", "lesion"), "names of the classes 0, 1, …")
    colours: tuple[str, ...] = option((), "mask colours, as #rrggbb=CLASS: #ff0000=1,#00ff00=2")
    window: str | None = option(None, "of volumes: by name, or two numbers; their own range where none")
    min_pixels: int = option(1, "lesion pixels that a slice of a volume or stack must have", minimum=0)
    licence: str = option("not stated", "terms of use, to be written down with the data")

    def mask_rule(self) -> MaskRule:
        if self.colours:
            pairs = [entry.partition("=") for entry in self.colours]
            wrong = ["".join(parts) for parts in pairs if not parts[2].isdigit()]
            if wrong:
                raise UserError(f"colours: write #rrggbb=CLASS, not {wrong[0]!r}")
            return MaskRule(colours={name: int(number) for name, _, number in pairs})
        return MaskRule(index=True, classes=len(self.classes)) if self.index else MaskRule()


def any_folder(folder: Path | str, rule: FolderRule | None = None) -> Raw:
    """All that can be matched in a folder; unmatched files are named in one error."""
    rule = rule or FolderRule()
    matches, problems = match(Path(folder), rule.masks, also=SUFFIXES)
    if problems:
        head = f"{shown(folder)}: {len(problems)} problem{'s' * (len(problems) > 1)}; mend or remove them:"
        raise UserError("\n  ".join([head, *problems]))
    keys = [pair.key for pair in matches]
    names = names_of(keys)
    groups = groups_of(keys, names, rule.group)
    units = [Unit(n, (m.image, m.mask), g) for n, m, g in zip(names, matches, groups, strict=True)]
    mask_rule = rule.mask_rule()
    window = None if rule.window is None else parse_window(rule.window)

    def read(unit: Unit) -> Iterator[Item]:
        if any(is_volume(file) for file in unit.files):
            return _volume(unit, rule, window)
        return _stack(unit, rule) if _frames(unit) else picture_items(unit, mask_rule)

    return Raw(
        name=Path(folder).resolve().name,
        source="folder",
        licence=rule.licence,
        classes=rule.classes,
        rules={
            "group": rule.group,
            "index": rule.index,
            "colours": list(rule.colours),
            "window": None if window is None else list(window),
            "min_pixels": rule.min_pixels,
        },
        units=units,
        read=read,
        merge_identical=rule.group == "image",
    )


def _frames(unit: Unit) -> bool:
    """Whether a pair of files are TIFF stacks; both are then."""
    return any(is_stack(file) for file in unit.files if file.suffix.lower() in (".tif", ".tiff"))


def _volume(unit: Unit, rule: FolderRule, window: tuple[float, float] | None) -> Iterator[Item]:
    wrong = [file for file in unit.files if not is_volume(file)]
    if wrong:
        raise UserError(f"{shown(wrong[0])}: a picture, where its partner is a volume; give both as NIfTI")
    scan, drawn = (open_volume(file) for file in unit.files)
    same_space(scan, drawn)
    mask = read_volume(drawn, labels(drawn.path, MAX_CLASSES - 1))
    if not rule.index and not rule.colours:
        mask = (mask > 0).astype(np.uint8)
    images = read_volume(scan, windowed(*(window or value_range(scan))))
    for item in _slices(unit, rule, images, mask):
        spacing = [round(mm, 6) for mm in scan.spacing]
        yield Item(item.pair, {**item.extra, "spacing_mm": spacing[1:], "slice_mm": spacing[0]})


def _stack(unit: Unit, rule: FolderRule) -> Iterator[Item]:
    image_file, mask_file = unit.files
    images, masks = open_frames(image_file), open_frames(mask_file)
    if len(images) != len(masks) or images[0].size != masks[0].size:
        shapes = [f"{len(frames)} of {frames[0].size[0]}×{frames[0].size[1]}" for frames in (images, masks)]
        raise UserError(f"{shown(mask_file)}: frames: {shapes[1]}, but its image {shown(image_file)} has {shapes[0]}")
    if any(is_deep(frame) for frame in images):
        pixels = deep_to_bytes(np.stack([np.asarray(frame) for frame in images]))
    else:
        pixels = np.stack([image_pixels(frame) for frame in images])
    read = rule.mask_rule()
    drawn = np.stack([read.read(mask_file, frame) for frame in masks])
    yield from _slices(unit, rule, pixels, drawn)


def _slices(
    unit: Unit, rule: FolderRule, images: UInt8[np.ndarray, "n h w *c"], masks: UInt8[np.ndarray, "n h w"]
) -> Iterator[Item]:
    """A pair for each slice with enough lesion."""
    digits = max(3, len(str(len(masks) - 1)))
    for index, mask in enumerate(masks):
        if np.count_nonzero(mask) < rule.min_pixels:
            continue
        image = np.ascontiguousarray(images[index])
        image = image[..., None] if image.ndim == 2 else image
        name = f"{unit.key}-{index:0{digits}d}"
        yield Item(Pair(image, np.ascontiguousarray(mask), name, unit.group), {"volume": unit.key, "slice": index})
