"""Real and synthetic pairs in one folder, and who trains on what: a cell is one seed at one dose.

The validation part of a seed is real, and the same at every dose. Doses are nested: a seed's synthetic images stand in
one order, and a dose is its beginning. Synthetic images of masks that a seed validates on are left out of its order:
they would show the segmenter the very lesions that it is validated on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.prepared import IMAGES, MASKS, is_prepared, write_index
from laworder.data.splits import Split, split_source
from laworder.errors import UserError
from laworder.evaluation.pairing import partners
from laworder.runs import sha256_file

REAL, SYNTHETIC = "real-", "synthetic-"


@dataclass(frozen=True)
class Cell:
    """One training: `dose` synthetic images, of `asked`, beside the real ones."""

    seed: int
    asked: int
    dose: int
    split: Split

    @property
    def name(self) -> str:
        return f"seed-{self.seed}-dose-{self.dose}"


def merged(real: Source, synthetic: Source, folder: Path) -> Path:
    """Both sources as one prepared data set, written once."""
    if is_prepared(folder):
        return folder
    for part in (IMAGES, MASKS):
        (folder / part).mkdir(parents=True, exist_ok=True)
    jobs = [(REAL, real, i) for i in range(len(real))] + [(SYNTHETIC, synthetic, i) for i in range(len(synthetic))]
    records: list[dict[str, object]] = [{} for _ in jobs]

    def write(position: int) -> None:
        kind, source, index = jobs[position]
        pair = source.read(index)
        name = kind + pair.name
        files = folder / IMAGES / f"{name}.png", folder / MASKS / f"{name}.png"
        Image.fromarray(pair.image[..., 0] if pair.image.shape[2] == 1 else pair.image).save(files[0])
        Image.fromarray(pair.mask).save(files[1])
        height, width = pair.mask.shape
        records[position] = {
            "name": name,
            "group": kind + pair.group,
            "width": width,
            "height": height,
            "lesion_pixels": int(np.count_nonzero(pair.mask)),
            "image_sha256": sha256_file(files[0]),
            "mask_sha256": sha256_file(files[1]),
        }

    over_cores(write, len(jobs), label="writing pairs")
    pools = {
        kind.rstrip("-"): [str(r["name"]) for r in records if str(r["name"]).startswith(kind)]
        for kind in (REAL, SYNTHETIC)
    }
    head = {"source": "real and synthetic pairs for `evaluate downstream`", "classes": ["background", "lesion"]}
    write_index(folder, head, pools, records)
    return folder


def cells(
    real: Source,
    synthetic: Source,
    *,
    seeds: Sequence[int],
    doses: Sequence[int],
    held_out: float,
    split_by: str,
    keep_validation_masks: bool = False,
) -> list[Cell]:
    """Every seed at every dose; doses beyond what there is become all there is, once."""
    belongs = [None if k is None else real.names[k] for k in partners(synthetic, real)]
    found: list[Cell] = []
    for seed in seeds:
        parts = split_source(real, val=held_out, seed=seed, by=split_by)
        validated = set() if keep_validation_masks else set(parts.val)
        order = [i for i in ordered(synthetic.names, seed) if belongs[i] not in validated]
        seen: set[int] = set()
        for asked in sorted({0, *doses}):
            dose = min(asked, len(order))
            if dose not in seen:
                seen.add(dose)
                found.append(Cell(seed, asked, dose, _split(parts, real, synthetic, order[:dose], seed)))
    if all(cell.dose == 0 for cell in found):
        raise UserError("doses: no synthetic image is left to add; give doses above 0, or more synthetic images")
    return found


def ordered(names: Sequence[str], seed: int) -> list[int]:
    """A seed's order of synthetic images, by their names alone."""
    return sorted(range(len(names)), key=lambda i: hashlib.sha256(f"{seed}\0{names[i]}".encode()).digest())


def _split(parts: Split, real: Source, synthetic: Source, chosen: Sequence[int], seed: int) -> Split:
    """Who trains and who validates, in the merged names; the synthetic images that are not used stand under test."""
    used = [SYNTHETIC + synthetic.names[i] for i in chosen]
    left = sorted({SYNTHETIC + name for name in synthetic.names} - set(used))
    assert len(parts.train) + len(parts.val) == len(real), "the real pairs are trained on or validated on"
    return Split(
        train=(*(REAL + name for name in parts.train), *used),
        val=tuple(REAL + name for name in parts.val),
        test=tuple(left),
        seed=seed,
    )
