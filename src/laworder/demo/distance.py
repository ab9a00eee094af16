"""How far drawn images are from real ones, in the features of the segmenter that judges them.

The FID's network comes as a download, which a demo does without. What a small segmenter has learnt to see says less,
and nothing beyond this page; it is called by its name, never FID.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from laworder.data.load import load_arrays
from laworder.data.pairs import Source
from laworder.metrics.frechet import Features, frechet_of
from laworder.order.backbone import MultiKernelUNet
from laworder.segmentation.loading import load_segmenter


@torch.no_grad()
def features(judge: MultiKernelUNet, source: Source) -> Features:
    """Mean and spread over the picture of every channel of every encoder level; a row an image."""
    pairs = load_arrays(source, judge.preprocessing.size, judge.in_channels, range(len(source)), progress=False)
    rows: list[torch.Tensor] = []
    for chunk in pairs.images.split(32):
        maps = judge.encode(judge.preprocessing.normalise(chunk.float() / 255))
        rows.append(torch.cat([part for m in maps for part in (m.mean((2, 3)), m.std((2, 3)))], dim=1))
    return torch.cat(rows).numpy().astype(np.float32)


def distances(judge: Path, real: Source, sets: Mapping[str, Source]) -> tuple[dict[str, float], float]:
    """Fréchet distance of each set to the real images; and of their one half to the other, what chance alone makes.

    Every feature is first divided by its spread over the real images, so that no level drowns the others.
    """
    network = load_segmenter(str(judge), device=torch.device("cpu"))
    assert isinstance(network, MultiKernelUNet), "the demo's judge is ORDER"
    base = features(network, real)
    spread = base.std(axis=0) + 1e-6
    there = {name: frechet_of(features(network, source) / spread, base / spread) for name, source in sets.items()}
    return there, frechet_of(base[::2] / spread, base[1::2] / spread)
