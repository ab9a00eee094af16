"""What a model folder, and the run around it, say about themselves; its weights are held to what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laworder.data.prepared import file_hash
from laworder.diffusion.folders import model_folder, model_hash, read_card
from laworder.errors import UserError
from laworder.runs import Manifest, read_manifest
from laworder.runs.manifest import NAME as MANIFEST

UNKNOWN = "not stated"


@dataclass(frozen=True)
class Model:
    """path: as the user named it; manifest: of the run that the model lies in, where it lies in one"""

    path: Path
    card: dict[str, Any]
    manifest: Manifest | None

    @classmethod
    def at(cls, path: Path) -> Model:
        """UserError where there is no model, or where its weights are not those that its card lists."""
        folder, card = model_folder(path), read_card(path)
        for name, digest in card["weights"].items():
            if file_hash(folder / name) != digest:
                raise UserError(
                    f"{folder / name}: not the weights that {folder.name}/laworder.json lists; copy it anew"
                )
        run = folder.resolve().parent
        return cls(path, card, read_manifest(run) if (run / MANIFEST).is_file() else None)

    @property
    def name(self) -> str:
        """What to call it beside others: its objective, or its stage."""
        return "image prior" if self.is_prior else str(self.card.get("objective", UNKNOWN))

    @property
    def is_prior(self) -> bool:
        """Whether it draws without masks."""
        return self.card.get("stage") == "prior"

    def facts(self) -> list[tuple[str, str]]:
        """Name and value, in the order in which one asks."""
        return [*_what(self.card), *_trained(self.card), *_when(self.manifest)]

    def metrics(self) -> dict[str, float | None]:
        """Of the kept weights, on the fixed validation masks."""
        return dict(self.card.get("metrics", {}))


def _what(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    stage = card.get("stage", UNKNOWN)
    facts = [
        ("stage", {"control": "control by masks", "prior": "image prior, without masks"}.get(stage, stage)),
        ("backbone", f"{card['backbone']}, {card['size']}×{card['size']}, {card['image_channels']} channels"),
        ("predicts", card["prediction"]),
        ("weights", f"sha256 {model_hash(dict(card))[:16]}…, {len(card['weights'])} files as listed"),
    ]
    if "learned" in card:
        facts.append(("learned weights", f"{card['learned']:,}"))
    return facts


def _trained(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    data, sampling = card.get("data", {}), card.get("sampling", {})
    settings = _listed(card.get("objective_settings", {}))
    prompts = [p for p in (card.get("prompt", ""), *card.get("class_prompts", [])) if p]
    return [
        ("objective", card.get("objective", UNKNOWN) + (f" ({settings})" if settings else "")),
        ("trained on", f"{data.get('pairs', '?')} pairs of {data.get('source', UNKNOWN)}"),
        ("data sha256", str(data.get("hash", UNKNOWN))),
        ("masks reach the latents by", str(card.get("mask_resize", UNKNOWN))),
        ("prompts", "; ".join(prompts) or "none"),
        ("steps", f"{card.get('step', '?')} kept of {card.get('steps', '?')}, seed {card.get('seed', '?')}"),
        ("validated with", _listed(sampling) or UNKNOWN),
    ]


def _when(manifest: Manifest | None) -> list[tuple[str, str]]:
    if manifest is None:
        return []
    device, commit = manifest.device, manifest.git
    libraries = {k: manifest.versions[k] for k in ("laworder", "torch", "diffusers") if k in manifest.versions}
    return [
        ("run", f"{manifest.outcome}, {manifest.started} to {manifest.ended or '?'}"),
        ("device", f"{device.get('name', '?')} ({device.get('type', '?')})"),
        ("versions", _listed(libraries)),
        ("code", UNKNOWN if commit is None else commit["commit"][:12] + (", changed" if commit["dirty"] else "")),
        ("command", " ".join(manifest.command)),
    ]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
