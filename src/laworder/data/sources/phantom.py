"""Procedural pictures with small lesions of known size: the embedded default, and the bed for every test.

Nothing is downloaded and nobody's data is in it. Pair `index` is a pure function of (seed, index): its patient,
index // `pairs_per_patient`, decides the anatomy, the texture and where the lesion sits; the pair itself decides the
view, the lesion's size and the noise. Pairs of one patient are therefore alike, and a split that tears patients apart
leaks, as it does with real data.

Lesion areas are log-uniform over `lesion_range` and exact to the pixel; see `PhantomSource.lesion_fraction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import UInt8

from laworder.data.pairs import Pair
from laworder.data.sources.painters import colon, ct, mr
from laworder.errors import UserError, nearest

Painter = Callable[
    [np.random.Generator, np.random.Generator, int, float, bool],
    tuple[UInt8[np.ndarray, "size size c"], UInt8[np.ndarray, "size size"]],
]

PAINTERS: dict[str, Painter] = {"colon": colon.paint, "mr": mr.paint, "ct": ct.paint}
MODALITIES = (*PAINTERS, "mixed")

# Streams of randomness that must not meet: one integer each, after the seed.
_PATIENT, _VIEW, _DRAW = 1, 2, 3


class PhantomSource:
    """`count` procedural pairs behind the `Source` protocol.

    count: number of pairs
    size: side in pixels; the same (seed, index) shows the same scene at every size
    modality: "colon" (RGB), "mr", "ct" (gray), or "mixed": the three in turn, patient by patient
    seed: other seeds are other patients
    distractor: probability that a picture also holds something lesion-like without a label (a swollen fold or residue,
        an enhancing vessel, a cyst); True and False are 1 and 0
    lesion_range: smallest and largest lesion area as fractions of the picture, log-uniform between
    healthy: probability that a picture has no lesion and an empty mask
    pairs_per_patient: how many pairs share one patient, who is the pair's group
    """

    def __init__(
        self,
        count: int,
        *,
        size: int = 256,
        modality: str = "colon",
        seed: int = 0,
        distractor: float = 0.0,
        lesion_range: tuple[float, float] = (0.002, 0.15),
        healthy: float = 0.0,
        pairs_per_patient: int = 4,
    ) -> None:
        _check(count, size, modality, seed, distractor, lesion_range, healthy, pairs_per_patient)
        self.size, self.modality, self.seed = size, modality, seed
        self.distractor, self.healthy = float(distractor), float(healthy)
        self.lesion_range = (float(lesion_range[0]), float(lesion_range[1]))
        self.pairs_per_patient = pairs_per_patient
        kinds = tuple(PAINTERS) if modality == "mixed" else (modality,)
        patients = [index // pairs_per_patient for index in range(count)]
        self.modalities = [kinds[patient % len(kinds)] for patient in patients]
        self.groups = [f"{kind}-s{seed}-p{p:05d}" for kind, p in zip(self.modalities, patients, strict=True)]
        self.names = [f"{group}-{index % pairs_per_patient:02d}" for index, group in enumerate(self.groups)]

    def __len__(self) -> int:
        return len(self.names)

    def lesion_fraction(self, index: int) -> float:
        """The lesion's share of the picture that pair `index` is drawn with; 0 for a healthy one. Draws no picture."""
        return self._plan(index)[0]

    def read(self, index: int) -> Pair:
        """Draw pair `index`."""
        fraction, distractor = self._plan(index)
        patient = np.random.default_rng((self.seed, _PATIENT, index // self.pairs_per_patient))
        view = np.random.default_rng((self.seed, _VIEW, index))
        image, mask = PAINTERS[self.modalities[index]](patient, view, self.size, fraction, distractor)
        return Pair(image=image, mask=mask, name=self.names[index], group=self.groups[index])

    def _plan(self, index: int) -> tuple[float, bool]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of {len(self)}")
        low, high = self.lesion_range
        size, healthy, distractor = np.random.default_rng((self.seed, _DRAW, index)).random(3)
        fraction = 0.0 if healthy < self.healthy else low * (high / low) ** float(size)
        return fraction, bool(distractor < self.distractor)


def _check(
    count: int,
    size: int,
    modality: str,
    seed: int,
    distractor: float,
    lesion_range: tuple[float, float],
    healthy: float,
    pairs_per_patient: int,
) -> None:
    if modality not in MODALITIES:
        raise UserError(f"phantom: no modality {modality!r}{nearest(modality, MODALITIES)}")
    for name, value, least in (("count", count, 1), ("size", size, 16), ("pairs_per_patient", pairs_per_patient, 1)):
        if value < least:
            raise UserError(f"phantom: {name} must be at least {least}, not {value}")
    if seed < 0:
        raise UserError(f"phantom: seed must not be negative, but is {seed}")
    for name, value in (("distractor", distractor), ("healthy", healthy)):
        if not 0 <= value <= 1:
            raise UserError(f"phantom: {name} is a probability from 0 to 1, not {value}")
    low, high = lesion_range
    if not (math.isfinite(low) and 0 < low <= high <= 0.25):
        raise UserError(f"phantom: lesion_range must be (smallest, largest) between 0 and 0.25, not {lesion_range}")
