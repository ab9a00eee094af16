"""Which real image does a generated one belong to: the one with the mask that made it."""

from __future__ import annotations

import numpy as np

from laworder.data.pairs import Source
from laworder.data.parallel import over_cores
from laworder.data.prepared import PreparedSource


def partners(generated: Source, real: Source) -> list[int | None]:
    """For each generated image the position of the real one of its mask, or None.

    By the mask's name where the generator wrote it down (`mask` in dataset.json), else by the pair's own name, and for
    names that are not among the real ones by an identical mask, where only one real pair has it.
    """
    place = {name: k for k, name in enumerate(real.names)}
    found = [place.get(name) for name in _mask_names(generated)]
    left = [i for i, k in enumerate(found) if k is None]
    if not left:
        return found
    known: dict[bytes, list[int]] = {}
    for k, digest in enumerate(_shapes(real, range(len(real)))):
        known.setdefault(digest, []).append(k)
    for i, digest in zip(left, _shapes(generated, left), strict=True):
        matches = known.get(digest, [])
        found[i] = matches[0] if len(matches) == 1 else None
    return found


def _mask_names(source: Source) -> list[str]:
    if isinstance(source, PreparedSource):
        return [str(record.get("mask", record["name"])) for record in source.records]
    return list(source.names)


def _shapes(source: Source, indices: range | list[int]) -> list[bytes]:
    """Each mask's size and pixels."""
    found = [b""] * len(indices)

    def put(position: int) -> None:
        mask = source.read(indices[position]).mask
        found[position] = f"{mask.shape}".encode() + np.packbits(mask > 0).tobytes()

    over_cores(put, len(indices))
    return found
