r"""CLIP-I: cosine similarity between the embeddings of generated and real images.

- *paired*: each generated image with the real image of its mask, the mean over images;
- *set*: every generated image with every real one, the mean over all pairs = x̄ · ȳ of the embeddings at length 1. It
  says how alike the sets are on the whole, and is lower for real sets that are varied.

The number is called CLIP-I only where the encoder is a CLIP; by another encoder it carries that encoder's name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from laworder.evaluation.context import Context
from laworder.evaluation.pairing import partners
from laworder.evaluation.section import Row, Section, not_measured
from laworder.metrics.overlap import bootstrap_interval
from laworder.report import Page

NAME, TITLE = "clip_i", "CLIP-I"


def check(context: Context) -> None:
    """UserError where the encoder cannot be had."""
    encoder = context.clip or context.encoder
    if encoder is not None:
        context.features.extractor(encoder)


def measure(context: Context) -> Section:
    """The section of the report."""
    encoder = context.clip or context.encoder
    if encoder is None:
        return not_measured(NAME, TITLE, "give --clip a CLIP, as a folder or an id on the Hugging Face Hub")
    found = context.features.extractor(encoder)
    made, real = (_unit(context.features.of(source, encoder)) for source in (context.generated, context.real))
    title = "CLIP-I" if found.clip else f"cosine similarity by {found.label}"
    pairs = [(i, k) for i, k in enumerate(partners(context.generated, context.real)) if k is not None]
    rows, words = [], []
    values: dict[str, Any] = {"measured": True, "encoder": found.label, "is_clip": found.clip, "pairs": len(pairs)}
    if pairs:
        cosines = (made[[i for i, _ in pairs]] * real[[k for _, k in pairs]]).sum(1)
        interval = bootstrap_interval(cosines, seed=context.seed) if len(pairs) > 1 else None
        beside = f"{len(pairs)} of {len(made)} generated images, each with the real image of its mask; by {found.label}"
        values["paired"] = {"mean": float(cosines.mean()), "interval_95": interval}
        rows.append(Row(f"{title}, paired", float(cosines.mean()), interval, beside, 3, "clip_i" if found.clip else ""))
        words.append(f"{title}, paired: {float(cosines.mean()):.3f} over {len(pairs)} pairs, by {found.label}.")
    else:
        rows.append(Row(f"{title}, paired", None, None, "no generated image has its mask among the real pairs"))
    whole, own = _mean_cosine(made, real), _own_cosine(real)
    values["set"] = {"mean": whole, "real_with_real": own}
    beside = f"every generated with every real image; real images with each other {own:.3f}"
    rows.append(Row(f"{title}, set", whole, None, beside, 3, "clip_i" if found.clip else ""))
    words.append(f"{title}, set: {whole:.3f}, where real images have {own:.3f} with each other.")
    return Section(NAME, "CLIP-I" if found.clip else "Similarity of embeddings", values, rows, words, _draw)


def _draw(page: Page) -> None:
    page.text(
        "Paired: each generated image against the real image whose mask made it. Set: all generated against all real "
        "images. The encoder is named because the number means little without it; only a CLIP's is called CLIP-I."
    )


def _unit(features: np.ndarray) -> Float[Tensor, "n d"]:
    return F.normalize(torch.from_numpy(np.array(features)).double(), dim=1)


def _mean_cosine(a: Tensor, b: Tensor) -> float:
    return float(a.mean(0) @ b.mean(0))


def _own_cosine(x: Float[Tensor, "n d"]) -> float:
    """The mean over pairs of different images."""
    n = len(x)
    return float((x.sum(0).square().sum() - n) / (n * (n - 1)))
