"""Parts of one source as the splits to audit: what a split file says, so that its leaks show before anything trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laworder.data.audit.folders import Opened
from laworder.data.audit.look import FromFiles
from laworder.data.pairs import Pair, Source
from laworder.data.split_files import read_splits
from laworder.data.splits import PARTS
from laworder.errors import UserError


class Part:
    """Some pairs of a source, behind the `Source` protocol; the files of their masks too, where there are any."""

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        self.source, self.indices = source, list(indices)
        self.names = [source.names[i] for i in self.indices]
        self.groups = [source.groups[i] for i in self.indices]
        if isinstance(source, FromFiles):
            self.pairs = [source.pairs[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> Pair:
        return self.source.read(self.indices[index])


def by_split_file(opened: Opened, path: Path, fold: int) -> dict[str, Opened]:
    """The parts of a split as splits to audit. What is wrong with files is told with the first of them."""
    splits = read_splits(path, opened.source.names)
    if fold >= len(splits):
        raise UserError(f"{path}: holds {len(splits)} splits, counted from 0; there is no fold {fold}")
    split = splits[fold]
    parts = {part: Part(opened.source, split.indices(part, opened.source.names)) for part in PARTS if split.part(part)}
    first = next(iter(parts))
    return {part: Opened(one, opened.problems if part == first else []) for part, one in parts.items()}
