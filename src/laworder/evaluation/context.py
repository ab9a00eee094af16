"""What every judge is given.

A judge is a module of this room with `measure(context: Context) -> Section`. One whose own inputs can be wrong has
`check(context: Context) -> None` too, which is called before any judge measures: a wrong file is told at once, not
after an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from laworder.data.pairs import Source
from laworder.evaluation.extractors import INCEPTION
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.leakage import Training, training_of


@dataclass(frozen=True, kw_only=True)
class Context:
    """The inputs of one evaluation. Nothing in here changes while it runs.

    generated: the generated images, each with the mask that made it
    real:      the real pairs that they are compared with
    train:     the pairs that the generator was trained on, where `real` is not them; see `seen`
    protocol:  train, where the generated images belong to training masks; held-out, where to those of `real`, which
               neither the generator nor the judge has seen
    held_out:  real pairs that neither the generator nor the judge has seen: the judge's own ceiling
    judge:     segmenter for mask recovery: whatever `load_segmenter` takes, or a folder of nnU-Net
    force:     go on where the judge was trained on what it judges
    features:  embeddings of a source by name of the encoder, kept on disk by content:
               `context.features.of(context.generated, "inception")` is a float32 array, one row an image
    encoder:   the second feature space; None where only Inception is to be used
    clip:      the encoder of CLIP-I: a CLIP, or another encoder that is then called by its own name
    statistics: `.npz` file of real images' statistics, as pytorch-fid saves them
    nnunet:    Python that has nnunetv2, where this one has not
    out:       folder of the results, made already; a judge may write into a subfolder of its own name
    seed, batch, device, resamples: as typed
    """

    generated: Source
    real: Source
    train: Source | None = None
    protocol: Literal["train", "held-out"] = "train"
    held_out: Source | None = None
    judge: str | None = None
    force: bool = False
    features: FeatureStore
    encoder: str | None = None
    clip: str | None = None
    statistics: Path | None = None
    nnunet: Path | None = None
    out: Path
    seed: int = 0
    batch: int = 16
    resamples: int = 100
    device: torch.device

    @property
    def networks(self) -> list[str]:
        """The feature spaces at hand, Inception-2015 first; none where its weights lack and no other was named."""
        named = [INCEPTION] if self.features.has_inception else []
        return list(dict.fromkeys([*named, *([] if self.encoder is None else [self.encoder])]))

    @property
    def seen(self) -> Source | None:
        """What the generator was trained on; None where we are not told: held-out real images are not it."""
        return self.real if self.train is None and self.protocol == "train" else self.train

    @cached_property
    def training(self) -> Training:
        """What is known of the training of the judge, which must be given; looked up once."""
        assert self.judge is not None, "no judge has no training"
        return training_of(self.judge)
