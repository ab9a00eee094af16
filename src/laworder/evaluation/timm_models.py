"""A model of timm as an extractor: its pooled features, on images prepared as its own configuration says."""

from __future__ import annotations

import hashlib

import torch

from laworder.errors import UserError
from laworder.evaluation.extractors import Extractor
from laworder.evaluation.fast import runner
from laworder.evaluation.resizing import Framing
from laworder.evaluation.weights import weights_digest


def timm_extractor(name: str, device: torch.device) -> Extractor:
    """`name` as timm lists it; its weights come from the Hugging Face Hub or timm's cache."""
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("this needs timm, which is not installed: pip install timm") from error
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0).eval().requires_grad_(False)
    except (RuntimeError, OSError, ValueError) as error:
        raise UserError(f"timm:{name}: timm cannot make it: {str(error).splitlines()[0]}") from error
    wants = network.pretrained_cfg
    side = int(wants["input_size"][-1])
    framing = Framing(
        short=round(side / float(wants.get("crop_pct") or 1)),
        crop=side,
        mean=tuple(wants["mean"]),
        std=tuple(wants["std"]),
        filter=str(wants.get("interpolation") or "bicubic"),
    )
    digest = hashlib.sha256(f"timm {name} {framing} {weights_digest(network)}".encode()).hexdigest()
    return Extractor(f"{name} (timm)", framing.words, digest, framing, runner(network, device))
