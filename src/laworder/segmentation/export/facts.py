"""What an exported file says of itself, in its metadata: enough to use it without the model that it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from laworder._version import __version__
from laworder.order.base import Segmenter
from laworder.order.hub import Preprocessing
from laworder.segmentation.export.trace import LEAST

NOTE = "Not a medical device: its masks must not guide diagnosis or treatment."
FORMAT = "1"
"""Version of these facts."""


def name_of(model: Segmenter) -> str:
    """The registered name, or the class's."""
    return model.origin.name if model.origin else type(model).__name__.lower()


def weights_hash(model: Segmenter) -> str:
    """SHA-256 over the names, shapes and values of everything that the model holds."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def facts_of(model: Segmenter, *, resized: bool) -> dict[str, str]:
    """Texts, as ONNX's metadata holds them."""
    prepared = model.preprocessing
    return {
        "laworder": __version__,
        "laworder_format": FORMAT,
        "note": NOTE,
        "model": name_of(model),
        "weights_sha256": weights_hash(model),
        "input": "image: uint8, (batch, height, width, channels), RGB where there are three; sides from "
        f"{LEAST} pixels on",
        "outputs": "mask: uint8 class indices, (batch, height, width); probability: float32, (batch, classes, height, "
        "width)",
        "channels": str(model.in_channels),
        "classes": str(model.classes),
        "training_size": str(prepared.size),
        "geometry": "resized to the training size inside" if resized else "taken at its own size",
        "mean": json.dumps(prepared.mean),
        "std": json.dumps(prepared.std),
        "threshold": str(prepared.threshold),
    }


def preprocessing_of(facts: Mapping[str, str]) -> Preprocessing:
    """The statistics and the threshold again."""
    mean, std = (tuple(float(v) for v in json.loads(facts[key])) for key in ("mean", "std"))
    return Preprocessing(int(facts["training_size"]), mean, std, float(facts["threshold"]))
