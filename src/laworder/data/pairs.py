"""One shape for all data: an image, its mask, a name and the group that must not cross a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch.utils.data import Dataset

from laworder.errors import UserError


@dataclass(frozen=True)
class Pair:
    """An image with its mask.

    image: uint8, H×W×C with C = 1 (gray) or 3 (RGB)
    mask:  uint8, H×W, class indices (0 background, 1 lesion, 2… further classes)
    name:  unique within its source, safe as a file name
    group: patient or sequence; pairs of one group belong on one side of a split
    """

    image: UInt8[np.ndarray, "h w c"]
    mask: UInt8[np.ndarray, "h w"]
    name: str
    group: str


@runtime_checkable
class Source(Protocol):
    """Where pairs come from. Names and groups are known without decoding a single image."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def groups(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Pair:
        """Decode pair `index`; UserError names the file when that fails."""
        ...


def read_all(source: Source) -> Iterator[Pair]:
    """Every pair of a source, in its order."""
    return (source.read(i) for i in range(len(source)))


class Part:
    """Some pairs of a source, behind the `Source` protocol."""

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        self.source, self.indices = source, list(indices)
        self.names = [source.names[i] for i in self.indices]
        self.groups = [source.groups[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> Pair:
        return self.source.read(self.indices[index])


class PairDataset(Dataset[dict[str, torch.Tensor]]):
    """Pairs of any source, resized to one square size, as uint8 tensors that a loader can stack.

    Images are resized with antialiased bilinear filtering, masks with nearest neighbour. Reading is a pure
    function of the index, so that loader workers change nothing.
    """

    def __init__(self, source: Source, *, size: int, channels: int = 3, indices: Sequence[int] | None = None) -> None:
        if size < 1:
            raise UserError(f"size must be at least 1 pixel, not {size}")
        if channels not in (1, 3):
            raise UserError(f"channels must be 1 (gray) or 3 (RGB), not {channels}")
        self.source, self.size, self.channels = source, size, channels
        self.indices = list(range(len(source))) if indices is None else list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def names(self) -> list[str]:
        return [self.source.names[i] for i in self.indices]

    def __getitem__(self, position: int) -> dict[str, torch.Tensor]:
        index = self.indices[position]
        pair = self.source.read(index)
        image, mask = resize_pair(pair, self.size, self.channels)
        return {
            "image": torch.from_numpy(image).permute(2, 0, 1).contiguous(),
            "mask": torch.from_numpy(mask)[None],
            "index": torch.tensor(index),
        }


def resize_pair(
    pair: Pair, size: int, channels: int
) -> tuple[UInt8[np.ndarray, "size size c"], UInt8[np.ndarray, "size size"]]:
    """The pair at size×size: image antialiased bilinear, mask nearest; gray and RGB converted as asked."""
    gray = pair.image.shape[2] == 1
    picture = Image.fromarray(pair.image[..., 0] if gray else pair.image)
    mask = Image.fromarray(pair.mask)
    picture = picture.convert("L" if channels == 1 else "RGB")
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
        mask = mask.resize((size, size), Image.Resampling.NEAREST)
    image = np.array(picture, dtype=np.uint8)
    return (image[..., None] if channels == 1 else image), np.array(mask, dtype=np.uint8)
