"""Names that tell nothing: p0001-s01-003 is slice 3 of the first series of the first patient.

The numbers are ranks, in the order of the SHA-256 of instance UIDs. Why not a hash of the PatientID: whoever knows how
a hospital numbers its patients tries all numbers and reads the patient off the hash. Why not the rank of the PatientID:
it would tell who came to the hospital before whom. A secret salt would do, but preparing twice must give the same bytes
without a secret to keep. The rank of instance UIDs needs none: the same files get the same numbers on every machine,
under whatever names they lie, and one can compute it only from the files themselves.

The price: other files are other numbers. A patient added to the folder moves those who rank behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from laworder.data.sources.dicom.slices import Stack


@dataclass(frozen=True)
class Coded:
    """A stack under its own name and its patient's."""

    stack: Stack
    name: str
    patient: str


def coded(stacks: Sequence[Stack]) -> list[Coded]:
    """The stacks in the order of their names."""
    patients: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for index, stack in enumerate(stacks):
        patients[stack.patient].append((stack.rank, index))
    ranked = sorted(sorted(found) for found in patients.values())
    digits = max(4, len(str(len(ranked))))
    result: list[Coded] = []
    for number, found in enumerate(ranked, start=1):
        patient = f"p{number:0{digits}d}"
        few = max(2, len(str(len(found))))
        result += [
            Coded(stacks[index], f"{patient}-s{place:0{few}d}", patient)
            for place, (_, index) in enumerate(found, start=1)
        ]
    return result
