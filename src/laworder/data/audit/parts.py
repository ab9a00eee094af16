"""Parts of one source as the splits to audit: what a split file says, so that its leaks show before anything trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laworder.data.audit.folders import Opened
from laworder.data.audit.look import FromFiles
from laworder.data.pairs import Part, Source
from laworder.data.split_files import read_splits
from laworder.data.splits import PARTS
from laworder.errors import UserError


class FilesPart(Part):
    """Some pairs of a source that knows its files, with them: the audit looks at the masks' raw values."""

    def __init__(self, source: FromFiles, indices: Sequence[int]) -> None:
        super().__init__(source, indices)
        self.pairs = [source.pairs[i] for i in self.indices]


def part_of(source: Source, indices: Sequence[int]) -> Part:
    """Some pairs of a source, with their files where it knows them."""
    return FilesPart(source, indices) if isinstance(source, FromFiles) else Part(source, indices)


def by_split_file(opened: Opened, path: Path, fold: int) -> dict[str, Opened]:
    """The parts of a split as splits to audit. What is wrong with files is told with the first of them."""
    splits = read_splits(path, opened.source.names)
    if fold >= len(splits):
        raise UserError(f"{path}: holds {len(splits)} splits, counted from 0; there is no fold {fold}")
    split = splits[fold]
    parts = {
        part: part_of(opened.source, split.indices(part, opened.source.names)) for part in PARTS if split.part(part)
    }
    first = next(iter(parts))
    return {part: Opened(one, opened.problems if part == first else []) for part, one in parts.items()}
