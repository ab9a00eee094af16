"""The folder that sampling writes: prepared data with statements, which any number of processes fill together.

    OUT/images/<name>.png, OUT/masks/<name>.png    as prepared data has them
    OUT/provenance/<name>.json                     written last: an image that has it, with the right hashes, is done
    OUT/dropped/…                                  the same three, of images that a filter took out
    OUT/dataset.json                               when all are done
    OUT/manifest.json                              of the command that made it

No process needs to hear of another: each looks which of its own images are done, and makes the others.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laworder.data.parallel import over_cores
from laworder.data.prepared import IMAGES, INDEX, MASKS, file_hash
from laworder.data.sources.images import shown
from laworder.diffusion.sampling.jobs import Job
from laworder.diffusion.sampling.provenance import read_statement, text_of
from laworder.errors import UserError
from laworder.runs import Manifest, WriteError, read_manifest
from laworder.runs.manifest import NAME as MANIFEST
from laworder.runs.manifest import check_same_run, jsonable, now

PROVENANCE, DROPPED, PARTS = "provenance", "dropped", "parts"
MAY_CHANGE = (
    *("out", "batch", "workers", "device", "compile", "shard", "only"),
    *("filter.judge", "filter.least"),
)
"""Settings that may differ from one start to the next: they do not touch what an image is."""


class OutFolder:
    """A sampled set, as it is being made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, manifest: Manifest) -> None:
        """UserError where the folder holds anything else, or another set. Nothing is made yet."""
        try:
            present = sorted(p.name for p in self.folder.iterdir() if not p.name.startswith("."))
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(f"{shown(self.folder)}: cannot be used as a folder ({error.strerror})") from error
        if present and MANIFEST not in present:
            raise UserError(
                f"{shown(self.folder)}: holds other files ({shown(present[0])}, …) and no sampled images; choose "
                "another --out"
            )
        if present and self._holds_any():
            known = read_manifest(self.folder)
            check_same_run(known, manifest, self.folder, may_change=MAY_CHANGE, may_grow=("count",))

    def claim(self, manifest: Manifest) -> None:
        """Make the folder, or go on in it, after `check`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._holds_any():
                manifest.write(self.folder)
            for part in (IMAGES, MASKS, PROVENANCE):
                (self.folder / part).mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{shown(self.folder)}: cannot be used as a folder ({error.strerror})") from error

    def _holds_any(self) -> bool:
        """Whether any image is done: until then the settings may still change."""
        told = self.folder / PROVENANCE
        return (self.folder / DROPPED).is_dir() or (told.is_dir() and any(told.iterdir()))

    def finished(self, config: Any) -> None:
        """Write down that the set is what this config asks for."""
        manifest = read_manifest(self.folder)
        manifest.config, manifest.outcome, manifest.ended = jsonable(config), "done", now()
        manifest.write(self.folder)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)  # locks of the processes that made the parts

    def files(self, name: str, *, dropped: bool = False) -> tuple[Path, Path, Path]:
        """Image, mask and statement of one image."""
        root = self.folder / DROPPED if dropped else self.folder
        return root / IMAGES / f"{name}.png", root / MASKS / f"{name}.png", root / PROVENANCE / f"{name}.json"

    def where(self, name: str) -> tuple[Path, Path, Path]:
        """The three files wherever they are now."""
        kept = self.files(name)
        return kept if kept[2].is_file() or not (self.folder / DROPPED).is_dir() else self.files(name, dropped=True)

    def told(self, name: str) -> dict[str, Any] | None:
        """The statement of an image that is there; None where it is not made yet."""
        return read_statement(self.where(name)[2])

    def missing(self, jobs: Sequence[Job], *, workers: int | None, progress: bool) -> list[Job]:
        """Those whose files are not all there with the hashes that their statement says."""
        sound = [False] * len(jobs)

        def look(index: int) -> None:
            image, mask, statement = self.where(jobs[index].name)
            told = read_statement(statement)
            if told is not None:
                record = told["record"]
                hashes = (record["image_sha256"], record["mask_sha256"])
                sound[index] = (file_hash(image), file_hash(mask)) == hashes

        if self._holds_any():
            over_cores(look, len(jobs), workers=workers, label="checking what is there" if progress else None)
        return [job for job, fine in zip(jobs, sound, strict=True) if not fine]

    def reopen(self) -> None:
        """From here on the folder is not what its index says."""
        (self.folder / INDEX).unlink(missing_ok=True)

    def write(self, name: str, image: bytes, mask: bytes, told: dict[str, Any]) -> None:
        """One image; its statement last, which is how the others are known to be whole."""
        files = self.where(name)
        files[2].unlink(missing_ok=True)
        try:
            for path, content in zip(files, (image, mask, text_of(told).encode()), strict=True):
                path.write_bytes(content)
        except OSError as error:
            raise WriteError(
                f"cannot write {shown(self.folder)}: {error.strerror}; make room, then run the same command again"
            ) from error

    def rewrite(self, name: str, told: dict[str, Any]) -> None:
        """A new statement, whole or not at all."""
        path = self.where(name)[2]
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text_of(told), encoding="utf-8")
        partial.replace(path)

    def place(self, name: str, *, kept: bool) -> None:
        """Move an image to where it belongs; another process may have done so already."""
        here, there = self.files(name, dropped=kept), self.files(name, dropped=not kept)
        if not here[2].is_file():
            return
        for path in there:
            path.parent.mkdir(parents=True, exist_ok=True)
        for source, target in zip(here, there, strict=True):
            with contextlib.suppress(FileNotFoundError):
                source.replace(target)
