"""Was the judge trained on what it is to judge? Found through the manifest of its run.

A `seg train` run keeps its settings and the hash of the pairs that it read. Where that data is still there, unchanged,
the split is made again and the training images are compared with the judged ones, content by content, whatever they
are called. Where it is not, the hashes of the whole sets are all that can be compared. An nnU-Net keeps no manifest,
but where its folders raw, preprocessed and results lie side by side, as `evaluate downstream` leaves them, they say the
same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from laworder.data.load import source_hash
from laworder.data.opening import open_source
from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.sources.images import read_image
from laworder.errors import UserError
from laworder.runs import read_manifest
from laworder.segmentation.loading import MANIFEST, run_settings
from laworder.segmentation.parts import parts_of
from laworder.segmenters.nnunet_driver import is_nnunet, trained_folds


@dataclass(frozen=True)
class Training:
    """What is known of a judge's training.

    images:   hashes of the images that it was trained on; None where its data cannot be read again
    held_out: names that its run held out, and the source that they are in
    words:    what could not be checked, empty where all could
    """

    pairs: str | None = None
    images: frozenset[str] | None = None
    source: Source | None = None
    held_out: tuple[int, ...] = ()
    words: str = ""


def training_of(judge: str) -> Training:
    """What the manifest of a judge tells; nothing for a model without one."""
    folder = Path(judge).expanduser()
    if is_nnunet(folder):
        return _of_nnunet(judge, folder.resolve())
    if not (folder / MANIFEST).is_file():
        return Training(words=f"{judge} has no manifest, so what it was trained on is not known")
    settings, manifest = run_settings(folder), read_manifest(folder)
    digest = manifest.data.get("pairs")
    gone = (
        f"the data that {judge} was trained on, {settings.data}, is not there as it was; only whole sets are compared"
    )
    try:
        source = open_source(settings.data, masks=settings.masks, size=settings.size, phantom=settings.phantom)
        if source_hash(source) != digest:
            return Training(pairs=digest, words=gone)
        parts = parts_of(settings, source)
    except UserError:
        return Training(pairs=digest, words=gone)
    known = image_hashes(source, list(parts.indices("train", source.names)))
    return Training(digest, frozenset(known), source, tuple(parts.indices("val", source.names)))


def _of_nnunet(judge: str, model: Path) -> Training:
    """From nnU-Net's own raw data and folds, where they lie beside its results."""
    work, dataset = model.parent.parent.parent, model.parent.name
    images, splits = work / "raw" / dataset / "imagesTr", work / "preprocessed" / dataset / "splits_final.json"
    folds = trained_folds(model)
    whole = "all" in folds
    unknown = Training(words=f"{judge} has no raw data beside it, so what it was trained on is not known")
    if not images.is_dir():
        return unknown
    files = sorted(images.glob("*_0000.png"))
    if not whole:
        try:
            listed = json.loads(splits.read_text(encoding="utf-8"))
            cases = {case for fold in folds for case in listed[int(fold)]["train"]}
        except (OSError, ValueError, LookupError):
            return unknown
        files = [file for file in files if file.name.removesuffix("_0000.png") in cases]
    found = [""] * len(files)

    def put(position: int) -> None:
        found[position] = _pixels_hash(read_image(files[position]))

    over_cores(put, len(files))
    return Training(images=frozenset(found))


def refuse_trained_on(judge: str, known: Training, judged: dict[str, Source], *, force: bool) -> list[str]:
    """Sentences on what was found; UserError where the judge saw what it judges, unless `force`.

    judged: what it is in words → the pairs
    """
    words = [known.words] if known.words else []
    for what, source in judged.items():
        seen = _seen(known, source)
        if not seen:
            continue
        text = f"{judge} was trained on {len(seen)} of the {len(source)} {what} (the first is {seen[0]})"
        if not force:
            raise UserError(f"{text}; its score on them says nothing: give another judge or other images, or --force")
        words.append(f"{text}: its score on them is too high to mean anything (--force)")
    return words


def _seen(known: Training, source: Source) -> list[str]:
    """Names of the images that were trained on."""
    if known.images is not None:
        hashes = image_hashes(source, list(range(len(source))))
        return [name for name, one in zip(source.names, hashes, strict=True) if one in known.images]
    if known.pairs is not None and source_hash(source) == known.pairs:
        return list(source.names)
    return []


def shared_images(first: Source, second: Source) -> int:
    """How many images of `first` are among those of `second`, pixel for pixel."""
    known = set(image_hashes(second, list(range(len(second)))))
    return sum(one in known for one in image_hashes(first, list(range(len(first)))))


def image_hashes(source: Source, indices: list[int]) -> list[str]:
    """SHA-256 of each image's pixels, gray and RGB alike."""
    found = [""] * len(indices)

    def put(position: int) -> None:
        found[position] = _pixels_hash(source.read(indices[position]).image)

    over_cores(put, len(indices))
    return found


def _pixels_hash(image: UInt8[np.ndarray, "h w c"]) -> str:
    gray = image.shape[2] == 3 and bool((image == image[..., :1]).all())
    pixels = np.ascontiguousarray(image[..., :1] if gray else image)
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()
