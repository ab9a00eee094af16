"""A vision model of transformers as an extractor, from a folder or the Hub, on images prepared by its own processor.

A CLIP gives its projected image embedding; any other model its pooled output, or the mean over places where it pools
none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from laworder.errors import MissingExtraError, UserError
from laworder.evaluation.extractors import Extractor
from laworder.evaluation.fast import runner
from laworder.evaluation.resizing import Framing
from laworder.evaluation.weights import weights_digest

CLIP = "clip"
FILTERS_BY_NUMBER = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers, which preprocessor_config.json holds."""


def vision_extractor(name: str, device: torch.device) -> Extractor:
    """The model in the folder `name`, or of that id on the Hub."""
    try:
        import transformers
        from transformers.image_processing_base import ImageProcessingMixin
    except ImportError as error:
        raise MissingExtraError("transformers", "synth") from error
    folder = Path(name).expanduser()
    place = str(folder) if folder.is_dir() else name
    if not folder.is_dir() and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise UserError(f"{name!r} is no folder; give inception, timm:NAME, a folder, or OWNER/NAME on the Hub")
    try:
        config = transformers.AutoConfig.from_pretrained(place)
        framing = framing_of(ImageProcessingMixin.get_image_processor_dict(place)[0])
        network = _network(transformers, place, config)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{name}: no vision model with an image processor could be loaded from it: {reason}") from error
    network = network.eval().requires_grad_(False)
    digest = hashlib.sha256(f"transformers {framing} {weights_digest(network)}".encode()).hexdigest()
    label = folder.resolve().name if folder.is_dir() else name
    is_clip = config.model_type in (CLIP, "clip_vision_model")
    return Extractor(label, framing.words, digest, framing, runner(network, device), clip=is_clip)


def _network(transformers: Any, place: str, config: Any) -> nn.Module:
    kinds = {CLIP: transformers.CLIPModel, "clip_vision_model": transformers.CLIPVisionModelWithProjection}
    kind = kinds.get(config.model_type, transformers.AutoModel)
    found, report = kind.from_pretrained(place, output_loading_info=True)
    # transformers draws what a file lacks at random and goes on: features of such a network mean nothing.
    lacking = sorted({*report["missing_keys"], *(entry[0] for entry in report["mismatched_keys"])})
    pooler = [name for name in lacking if "pooler" in name]
    if len(pooler) < len(lacking):
        raise ValueError(f"it lacks the weights of {next(name for name in lacking if name not in pooler)}")
    if config.model_type in kinds:
        return _Projected(found.vision_model, found.visual_projection)
    return _Pooled(found.vision_model if hasattr(config, "vision_config") else found, pooled=not pooler)


def framing_of(settings: dict[str, Any]) -> Framing:
    """What a `preprocessor_config.json` asks for. (transformers' own processors ask for torchvision.)"""
    size, crop = settings["size"], settings.get("crop_size")
    size = {"shortest_edge": size} if isinstance(size, int) else size
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    squash = "height" in size
    short = int(size["height"] if squash else size["shortest_edge"])
    if squash and size["width"] != size["height"]:
        raise ValueError(f"it takes pictures of {size['width']}×{size['height']}, which are not square")
    cut = bool(settings.get("do_center_crop", crop is not None)) and crop is not None
    flat = not settings.get("do_normalize", True)
    return Framing(
        short=short,
        crop=int(crop["height"]) if cut and crop is not None else short,
        mean=(0.0,) * 3 if flat else tuple(map(float, settings["image_mean"])),
        std=(1.0,) * 3 if flat else tuple(map(float, settings["image_std"])),
        filter=FILTERS_BY_NUMBER[int(settings.get("resample", 3))],
        squash=squash,
    )


class _Projected(nn.Module):
    """CLIP's image embedding."""

    def __init__(self, tower: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.tower, self.projection = tower, projection

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(self.tower(pixel_values=x).pooler_output)


class _Pooled(nn.Module):
    """Whatever a vision model pools its output to; the mean over places where its file has no weights for that."""

    def __init__(self, model: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.model, self.pooled = model, pooled

    def forward(self, x: Tensor) -> Tensor:
        found = self.model(pixel_values=x)
        pooled = getattr(found, "pooler_output", None) if self.pooled else None
        if pooled is not None:
            return pooled.flatten(1)
        hidden = found.last_hidden_state
        return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)
