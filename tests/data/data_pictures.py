"""Small folders of pictures, for the tests of preparing and unpacking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def contents(folder: Path) -> dict[str, bytes]:
    """Everything that makes up the dataset: not the journal, which remembers times."""
    files = [folder / "dataset.json", *(folder / "images").iterdir(), *(folder / "masks").iterdir()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def pictures(folder: Path, count: int = 6) -> Path:
    """Small images and masks, no two alike."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / "images" / f"p{i}.png")
        mask = np.zeros((20, 24), dtype=np.uint8)
        mask[2 : 4 + i % 16, 3:9] = 255
        Image.fromarray(mask).save(folder / "masks" / f"p{i}.png")
    return folder
