"""Which mask belongs to which image, by name alone.

A file's *key* is its folder and its stem; an image and a mask with the same key are a pair. Folder names that only say
what lies in them (`images`, `masks`, …) are left out of the key, and so is a mask's suffix (`_mask`, `_seg`, …): thus
`images/a.jpg` matches `masks/a.png`, `a.jpg` matches `a_mask.png`, `train/images/p1/a.jpg` `train/masks/p1/a_seg.png`.
Names are compared after Unicode normalisation, since one system writes é as one character and another as two.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from laworder.data.sources.images import picture_suffixes, shown
from laworder.errors import UserError

IMAGE_FOLDERS = frozenset({"image", "images", "img", "imgs", "original", "originals"})
MASK_FOLDERS = frozenset(
    {
        "mask", "masks", "label", "labels", "gt", "gts", "ground truth", "ground_truth", "groundtruth",
        "annotation", "annotations", "segmentation", "segmentations", "seg", "segs",
    }
)  # fmt: skip
MASK_SUFFIX = re.compile(r"[_\-. ](mask|masks|seg|segmentation|label|labels|gt|groundtruth)$", re.IGNORECASE)
_JUNK = frozenset({"thumbs.db", "__macosx", "$recycle.bin"})


@dataclass(frozen=True)
class Match:
    """One image file, its mask file, and the key that they share."""

    image: Path
    mask: Path
    key: str


def match(images: Path, masks: Path | None, *, also: tuple[str, ...] = ()) -> tuple[list[Match], list[str]]:
    """All pairs in one folder, or in two, sorted by key; and one line for each file that is in no pair.

    also: suffixes, in lower case, of files that count besides pictures: volumes, where the caller reads them
    """
    for folder in (images, masks):
        if folder is not None and not folder.is_dir():
            raise UserError(f"{shown(folder)}: {'not a folder' if folder.exists() else 'no such folder'}")
    if masks is not None and masks.resolve() != images.resolve():
        inside = masks.resolve()
        found = [(f, False) for f in files_below(images) if inside not in f.resolve().parents]
        found += [(f, True) for f in files_below(masks)]
        roots = {False: images, True: masks}
    else:
        roots = {False: images, True: images}
        found = [(f, says_mask(f.relative_to(images))) for f in files_below(images)]
    pictures = [(f, m) for f, m in found if f.suffix.lower() in picture_suffixes() or f.name.lower().endswith(also)]
    if not any(not is_mask for _, is_mask in pictures):
        return [], [_nothing(images, [f for f, is_mask in found if not is_mask])]
    image_keys = _by_key((f, _key(f.relative_to(roots[False]))) for f, is_mask in pictures if not is_mask)
    mask_files = [f for f, is_mask in pictures if is_mask]
    mask_keys = _by_key((f, _mask_key(f.relative_to(roots[True]), image_keys)) for f in mask_files)
    return _join(image_keys, mask_keys)


def _join(images: dict[str, list[Path]], masks: dict[str, list[Path]]) -> tuple[list[Match], list[str]]:
    matches: list[Match] = []
    problems: list[str] = []
    for key in sorted(images.keys() | masks.keys()):
        pair = images.get(key, []), masks.get(key, [])
        for kind, files in zip(("images", "masks"), pair, strict=True):
            if len(files) > 1:
                problems.append(f"{', '.join(map(shown, files))}: {len(files)} {kind} of one name; keep one")
        if not pair[1]:
            problems += [f"{shown(f)}: no mask of that name" for f in pair[0]]
        elif not pair[0]:
            problems += [f"{shown(f)}: no image of that name" for f in pair[1]]
        elif len(pair[0]) == len(pair[1]) == 1:
            matches.append(Match(pair[0][0], pair[1][0], key))
    return matches, problems


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder, in a fixed order, through links to folders too, each folder once.

    Hidden files and operating systems' leavings are passed over.
    """
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_closed):
        seen.add(os.path.realpath(here))
        folders[:] = sorted(n for n in folders if not _junk(n) and os.path.realpath(Path(here, n)) not in seen)
        yield from (Path(here, name) for name in sorted(names) if not _junk(name))


def _closed(error: OSError) -> None:
    raise UserError(f"{shown(error.filename)}: this folder cannot be opened ({error.strerror})") from error


def _junk(name: str) -> bool:
    return name.startswith(".") or name.lower() in _JUNK


def _stem(path: Path) -> str:
    """The name without its ending; `.nii.gz` is one."""
    return path.stem[:-4] if path.name.lower().endswith(".nii.gz") else path.stem


def says_mask(path: Path) -> bool:
    return MASK_SUFFIX.search(_stem(path)) is not None or any(p.lower() in MASK_FOLDERS for p in path.parts[:-1])


def _key(path: Path) -> str:
    return _joined(path, _stem(path))


def key_of(path: Path, *, also: frozenset[str] = frozenset()) -> str:
    """The key of a file whose name may be a UID: what follows its last dot is an ending only if it is a known one.

    also: endings, in lower case, that are known besides those of pictures and volumes
    """
    plain = path.suffix.lower() not in {".nii", ".gz", *picture_suffixes(), *also}
    return _joined(path, path.name if plain else _stem(path))


def _joined(path: Path, stem: str) -> str:
    folders = [p for p in path.parts[:-1] if p.lower() not in IMAGE_FOLDERS | MASK_FOLDERS]
    return unicodedata.normalize("NFC", "/".join([*folders, stem]))


def _mask_key(path: Path, images: dict[str, list[Path]]) -> str:
    """The mask's own name where an image has it, else without the suffix that says "mask"."""
    key = _key(path)
    return key if key in images else MASK_SUFFIX.sub("", key)


def _by_key(files: Iterable[tuple[Path, str]]) -> dict[str, list[Path]]:
    keys: dict[str, list[Path]] = {}
    for file, key in files:
        keys.setdefault(key, []).append(file)
    return keys


def _nothing(folder: Path, files: list[Path]) -> str:
    kinds = Counter(f.suffix.lower() or "no suffix" for f in files)
    if not kinds:
        return f"{shown(folder)}: holds no images"
    listed = ", ".join(f"{count} × {shown(kind)}" for kind, count in kinds.most_common(4))
    return f"{shown(folder)}: holds no images in a format that is read here (but {listed})"


def names_of(keys: list[str]) -> list[str]:
    """A unique name for each key that is safe as a file name; a name does not depend on its neighbours' order."""
    plain = [re.sub(r"[^\w.\-]", "_", key.replace("/", "__")).lstrip(".") or "_" for key in keys]
    often = Counter(name.lower() for name in plain)
    return [
        name if often[name.lower()] == 1 else f"{name}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:8]}"
        for name, key in zip(plain, keys, strict=True)
    ]
