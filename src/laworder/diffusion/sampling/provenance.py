"""What is said about a synthetic image wherever it goes: text inside the PNG, and a statement beside it.

The statement (`provenance/<name>.json`) has the form of a C2PA manifest — claim generator, assertions with C2PA's
labels, ingredients with hashes — in plain JSON. It is not signed, hence proves nothing to somebody who distrusts
whoever passed it on; it tells an honest reader what the file is.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from laworder._version import __version__
from laworder.data.prepared import IMAGES, MASKS
from laworder.diffusion.folders import model_hash
from laworder.diffusion.sampling.jobs import Job
from laworder.diffusion.sampling.settings import Recipe

STATEMENT = "synthetic, not a patient"
_GENERATED = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
_SYNTHESIS = "laworder.synthesis"
_RECOVERY = "laworder.recovery"


@dataclass(frozen=True)
class Origin:
    """What all images of one set have in common: the model, and how it was asked."""

    model_sha256: str
    objective: str
    backbone: str
    recipe: Recipe
    varied: bool

    @classmethod
    def of(cls, card: Mapping[str, Any], recipe: Recipe, *, varied: bool) -> Origin:
        return cls(model_hash(dict(card)), str(card.get("objective", "not stated")), card["backbone"], recipe, varied)


def png(pixels: UInt8[np.ndarray, "h w *c"], text: Mapping[str, str] | None = None) -> bytes:
    """A PNG file with text in it."""
    told = PngInfo()
    for key, value in (text or {}).items():
        told.add_itxt(key, value)
    buffer = io.BytesIO()
    flat = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    Image.fromarray(flat).save(buffer, "PNG", compress_level=1, pnginfo=told)
    return buffer.getvalue()


def image_text(origin: Origin, job: Job, mask_sha256: str) -> dict[str, str]:
    """The text in an image's PNG: enough to recognise it, and to make it again."""
    return {
        "Description": STATEMENT,
        "Software": f"laworder {__version__}",
        "laworder:model_sha256": origin.model_sha256,
        "laworder:mask": job.mask,
        "laworder:mask_sha256": mask_sha256,
        "laworder:seed": str(origin.recipe.seed),
        "laworder:number": str(job.number),
        "laworder:noise_seed": str(job.noise_seed(origin.recipe.seed)),
    }


def statement(origin: Origin, job: Job, prompt: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The statement beside an image. record: its line in `dataset.json`, which is taken from here."""
    software = {"name": "laworder", "version": __version__}
    action = {"action": "c2pa.created", "digitalSourceType": _GENERATED, "softwareAgent": software}
    synthesis = {
        "statement": STATEMENT,
        "model": {"sha256": origin.model_sha256, "objective": origin.objective, "backbone": origin.backbone},
        "mask": {"name": job.mask, "sha256": record["mask_sha256"], "varied": origin.varied},
        "number": job.number,
        "noise_seed": job.noise_seed(origin.recipe.seed),
        "prompt": prompt,
        **asdict(origin.recipe),
    }
    return {
        "title": f"{IMAGES}/{job.name}.png",
        "format": "image/png",
        "claim_generator": f"laworder/{__version__}",
        "signed": False,
        "assertions": [
            {"label": "c2pa.actions", "data": {"actions": [action]}},
            {"label": "c2pa.hash.data", "data": {"alg": "sha256", "hash": record["image_sha256"]}},
            {"label": _SYNTHESIS, "data": synthesis},
        ],
        "ingredients": [
            {
                "title": f"{MASKS}/{job.name}.png",
                "format": "image/png",
                "relationship": "inputTo",
                "hash": {"alg": "sha256", "hash": record["mask_sha256"]},
            }
        ],
        "record": dict(record),
    }


def recovered(told: Mapping[str, Any], judge_sha256: str) -> float | None:
    """The Dice that this very judge found, where the statement says so."""
    for assertion in told["assertions"]:
        if assertion["label"] == _RECOVERY and assertion["data"]["judge_sha256"] == judge_sha256:
            return float(assertion["data"]["dice"])
    return None


def with_recovery(told: Mapping[str, Any], judge: str, judge_sha256: str, dice: float) -> dict[str, Any]:
    """The statement with what a judge found, in place of what another one did."""
    others = [assertion for assertion in told["assertions"] if assertion["label"] != _RECOVERY]
    found = {"judge": judge, "judge_sha256": judge_sha256, "dice": dice}
    return {**told, "assertions": [*others, {"label": _RECOVERY, "data": found}]}


def read_statement(path: Path) -> dict[str, Any] | None:
    """A statement; None where there is none, or only part of one."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) and {"record", "assertions"} <= told.keys() else None


def text_of(told: Mapping[str, Any]) -> str:
    """A statement as its file has it."""
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def sha256(content: bytes) -> str:
    """As hex."""
    return hashlib.sha256(content).hexdigest()
