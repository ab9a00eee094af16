"""Which images are to be made, what each is called, and where its noise comes from.

Number k of the images for a mask has the noise of generator(seed, step=k, stream="noise/<mask>"): a function of
(seed, mask's name, number) and of nothing else. Hence any image can be made again alone, more images can be added to
each mask, and the order in which images are made, and by whom, does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from laworder.errors import UserError, nearest
from laworder.runs import generator
from laworder.runs.randomness import key


@dataclass(frozen=True)
class Job:
    """One image to make: number `number` for the mask called `mask`, which is number `index` of its source."""

    name: str
    mask: str
    group: str
    index: int
    number: int

    def noise_seed(self, seed: int) -> int:
        """What `torch.Generator().manual_seed` takes to draw this image's noise."""
        return key(seed, step=self.number, stream=f"noise/{self.mask}")

    def generator(self, seed: int) -> torch.Generator:
        """Fresh, on the CPU: of the noise that sampling starts from, and of what a scheduler adds."""
        return generator(seed, step=self.number, stream=f"noise/{self.mask}")


def jobs_of(names: Sequence[str], groups: Sequence[str], *, count: int, augment: bool) -> list[Job]:
    """All images: the first for each mask, then the second for each, …

    The first image of a real mask has the mask's own name, so that it pairs with the real image; the others, and all
    images of varied masks, carry their number.
    """
    jobs = [
        Job(_named(name, number, augment), name, group, index, number)
        for number in range(count)
        for index, (name, group) in enumerate(zip(names, groups, strict=True))
    ]
    owners: dict[str, Job] = {}
    for job in jobs:
        other = owners.setdefault(job.name.casefold(), job)
        if other is not job:
            raise UserError(
                f"two images would be called {job.name!r}: number {other.number} of mask {other.mask!r} and number "
                f"{job.number} of {job.mask!r}; rename one of the masks"
            )
    return jobs


def _named(mask: str, number: int, augment: bool) -> str:
    if augment:
        return f"{mask}-v{number}"
    return mask if number == 0 else f"{mask}-n{number}"


def chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """Those called `only`; all where it is empty."""
    by_name = {job.name: job for job in jobs}
    for name in only:
        if name not in by_name:
            raise UserError(f"only: no image is called {name!r}{nearest(name, by_name)}")
    return [by_name[name] for name in dict.fromkeys(only)] if only else list(jobs)


def even_batch(count: int, most: int) -> int:
    """The size of batches that are all alike and at most `most`: 20 images in batches of at most 16 are twice 10.

    Every batch then has one shape, whatever was made before: networks are compiled once, and the same image in
    another batch of that shape comes out the same.
    """
    batches = -(-count // most)
    return -(-count // max(1, batches))
