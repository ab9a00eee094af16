"""`laworder data prepare`: a download, or a folder of one's own → one layout with hashes, groups and pools."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from laworder.config import group, option
from laworder.console import note, say
from laworder.data.archives import SUFFIXES, is_archive, unpack
from laworder.data.opening import Phantom
from laworder.data.prepare import prepare
from laworder.data.prepare.writer import SCRATCH, claim
from laworder.data.sources.anyfolder import FolderRule, any_folder
from laworder.data.sources.brisc import brisc
from laworder.data.sources.dicom import DicomRule, dicom
from laworder.data.sources.dicom.files import is_directory_file
from laworder.data.sources.images import shown
from laworder.data.sources.kits19 import KitsRule, kits19
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.polyps import polyps
from laworder.data.sources.raw import Raw, from_source
from laworder.errors import UserError
from laworder.runs import Lock


@dataclass(frozen=True, kw_only=True)
class Drawn(Phantom):
    """The drawn data, with its size."""

    size: int = option(256, "side of the drawn pictures", unit="pixels", minimum=16)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Read a download (or a folder of images and masks, or drawn data) once, and write it as PNG images, PNG masks of
    class indices, and dataset.json with hashes, groups, pools and rules. Stopped and started again, it goes on."""

    source: Literal["polyps", "brisc", "kits19", "dicom", "folder", "phantom"] = option(
        meaning="what kind of data it is", positional=True
    )
    from_: Path | None = option(None, f"the download: a folder, a DICOMDIR, or an archive ({', '.join(SUFFIXES)})")
    to: Path | None = option(None, "folder for the prepared data; prepared/SOURCE where none is given")
    workers: int | None = option(None, "threads; one a core where none is given", minimum=1)
    kits19: KitsRule = group(KitsRule, "which slices of KiTS19")
    dicom: DicomRule = group(DicomRule, "how DICOM files are read")
    folder: FolderRule = group(FolderRule, "how a folder of your own is read")
    phantom: Drawn = group(Drawn, "what is drawn")


def plan(config: Config) -> list[str]:
    """What `run` would do, in words."""
    where = "drawn pictures" if config.source == "phantom" else f"{config.from_ or 'the folder that --from must name'}"
    return [
        f"read {config.source} data: {where}",
        f"write images, masks and dataset.json to {target(config)}; keep what is there already and sound",
    ]


def run(config: Config) -> None:
    to = target(config)
    with _scratch(config, to) as scratch:
        raw = open_raw(config, to, scratch)
        for line in raw.notes:
            note(f"note: {line}")
        head = prepare(raw, to, workers=config.workers)
    counts = head["counts"]
    say(
        f"{counts['pairs']} pairs in {counts['groups']} groups, {counts['empty_masks']} with an empty mask: {shown(to)}"
    )
    for pool, size in counts["pools"].items():
        say(f"  pool {pool}: {size}")


def target(config: Config) -> Path:
    """Where the prepared data goes."""
    return config.to or Path("prepared") / config.source


@contextmanager
def _scratch(config: Config, to: Path) -> Iterator[Path]:
    """Where an archive is unpacked."""
    if config.source == "dicom":
        # Never where prepared data goes, not even if this is stopped: what is unpacked names patients.
        with TemporaryDirectory(prefix="laworder-") as folder:
            yield Path(folder) / "unpacked"
    else:
        yield to / SCRATCH
        # Only now: a run that was stopped needs it again.
        shutil.rmtree(to / SCRATCH, ignore_errors=True)


def open_raw(config: Config, to: Path, scratch: Path) -> Raw:
    """The source that the settings name; an archive is unpacked to `scratch` first."""
    if config.source == "phantom":
        return _drawn(config.phantom)
    origin = _origin(config, to, scratch)
    if config.source == "dicom":
        return dicom(origin, config.dicom, workers=config.workers)
    if config.source == "kits19":
        return kits19(origin, config.kits19)
    if config.source == "folder":
        return any_folder(origin, config.folder)
    return {"polyps": polyps, "brisc": brisc}[config.source](origin)


def _origin(config: Config, to: Path, scratch: Path) -> Path:
    """The folder (or DICOMDIR) to read; never one that is also written to."""
    if config.from_ is None:
        raise UserError(f"`data prepare {config.source}` needs --from: the folder or archive with the data")
    origin = config.from_
    if not origin.exists():
        raise UserError(f"{shown(origin)}: no such folder or archive")
    index = config.source == "dicom" and is_directory_file(origin)
    inside, outside = (origin.parent if index else origin).resolve(), to.resolve()
    if inside == outside or inside in outside.parents or outside in inside.parents:
        raise UserError(f"--to {shown(to)} and --from {shown(origin)} lie in each other; choose another --to")
    if origin.is_dir() or index:
        return origin
    if not is_archive(origin):
        raise UserError(f"{shown(origin)}: neither a folder nor an archive that can be read ({', '.join(SUFFIXES)})")
    claim(to)
    with Lock(to):
        return unpack(origin, scratch)


def _drawn(drawn: Drawn) -> Raw:
    source = PhantomSource(
        drawn.count, size=drawn.size, modality=drawn.modality, seed=drawn.seed, distractor=drawn.distractor
    )
    return from_source(
        source,
        name="phantom",
        licence="drawn by this program; nobody's data is in it",
        classes=("background", "lesion"),
        rules={"modality": drawn.modality, "seed": drawn.seed, "distractor": drawn.distractor, "size": drawn.size},
    )
