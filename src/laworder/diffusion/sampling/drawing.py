"""Draw what is missing: masks are read ahead and files written behind by threads, while the device draws."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from laworder.console import note
from laworder.diffusion.sampling.engine import Engine
from laworder.diffusion.sampling.jobs import Job
from laworder.diffusion.sampling.masks import Mask, Masks
from laworder.diffusion.sampling.outfolder import OutFolder
from laworder.diffusion.sampling.prompts import Prompts
from laworder.diffusion.sampling.provenance import Origin, image_text, png, sha256, statement
from laworder.errors import UserError
from laworder.runs import Progress
from laworder.runs.signals import StopRequest


@dataclass
class Drawing:
    """From jobs to files."""

    engine: Engine
    masks: Masks
    prompts: Prompts
    origin: Origin
    out: OutFolder
    workers: int | None = None

    def run(self, jobs: Sequence[Job], *, already: int = 0, show: bool = True) -> None:
        """Draw and write every job; a stop signal ends it behind the batch that is being drawn."""
        size = self.engine.batch
        chunks = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        workers = self.workers or min(os.cpu_count() or 1, 16)
        bar = Progress(total=already + len(jobs), initial=already, desc="sampling", unit="image", disable=_hidden(show))
        with bar, StopRequest() as stop, ThreadPoolExecutor(workers) as pool:
            read = [pool.submit(self._read, job) for job in chunks[0]]
            written: list[Future[None]] = []
            for number, chunk in enumerate(chunks):
                masks = [one.result() for one in read]
                following = chunks[number + 1] if number + 1 < len(chunks) else []
                read = [pool.submit(self._read, job) for job in following]
                images = self._draw(chunk, masks)
                # Of the batch before: at most two batches are ever held.
                _ended(written)
                written = [pool.submit(self._write, *one) for one in zip(chunk, masks, images, strict=True)]
                bar.update(len(chunk))
                if stop.requested is not None:
                    _ended(written)
                    stop.check()
            _ended(written)

    def _read(self, job: Job) -> Mask:
        return self.masks.read(job.index, job.number)

    def _draw(self, jobs: Sequence[Job], masks: Sequence[Mask]) -> list[UInt8[np.ndarray, "h w c"]]:
        """The pictures. Where memory does not suffice, batches become smaller for good: images do not depend on it."""
        shown = torch.stack([torch.from_numpy(mask > 0) for mask in masks])[:, None].float()
        prompts = [self.prompts(mask) for mask in masks]
        images: list[UInt8[np.ndarray, "h w c"]] = []
        while len(images) < len(jobs):
            part = slice(len(images), len(images) + self.engine.batch)
            generators = [job.generator(self.origin.recipe.seed) for job in jobs[part]]
            try:
                drawn: Tensor = self.engine.draw(shown[part], prompts[part], generators)
            except torch.OutOfMemoryError as error:
                self._halve(error)
                continue
            images += list(drawn.numpy())
        return images

    def _halve(self, error: torch.OutOfMemoryError) -> None:
        before = self.engine.batch
        if before == 1:
            raise UserError(
                "memory does not suffice for a single image: try precision bf16, or a device with more memory"
            ) from error
        self.engine.batch = before // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        note(f"batch: {before} images at once do not fit in memory; going on with {self.engine.batch}")

    def _write(self, job: Job, mask: Mask, image: UInt8[np.ndarray, "h w c"]) -> None:
        drawn = png(mask)
        picture = png(image, image_text(self.origin, job, sha256(drawn)))
        height, width = mask.shape
        record: dict[str, Any] = {
            "name": job.name,
            "group": job.group,
            "width": width,
            "height": height,
            "lesion_pixels": int(np.count_nonzero(mask)),
            "image_sha256": sha256(picture),
            "mask_sha256": sha256(drawn),
            "synthetic": True,
            "mask": job.mask,
            "number": job.number,
        }
        self.out.write(job.name, picture, drawn, statement(self.origin, job, self.prompts(mask), record))


def _hidden(show: bool) -> bool | None:
    return None if show else True


def _ended(futures: Sequence[Future[None]]) -> None:
    """Wait; what went wrong in a thread is raised here."""
    for one in futures:
        one.result()
