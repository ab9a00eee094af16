"""Model folders in diffusers' layout: written whole or not at all, read with one clear line where something lacks.

`laworder.json` holds, always: format, backbone, size, image_channels, factor, prediction, latents, prompts, weights
(file → SHA-256). From `synth train` also: stage (prior or control), objective and objective_settings, prompt (of every
pair) and class_prompts (lesion class → prompt, where classes have their own), mask_resize, steps and step (that was
kept), seed, data (where from, hash, pairs), metrics (of the kept weights), sampling (steps, guidance, eta, scheduler,
drops: how it was validated, and so the default for sampling).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from laworder.diffusion.autoencoders import Autoencoder, Pixels, open_autoencoder
from laworder.diffusion.backbone import NAMES, Backbone
from laworder.diffusion.library import library
from laworder.diffusion.text import ClipWords, FixedWords, Words
from laworder.errors import UserError
from laworder.runs import sha256_file
from laworder.runs.files import partial_name

CARD = "laworder.json"
MODEL = "model"
"""Where a run keeps its model folder."""
FORMAT = 1


def save_backbone(backbone: Backbone, folder: Path) -> None:
    """Every part by its own save_pretrained, then `laworder.json` with the hash of every weight file."""
    partial = partial_name(folder)
    partial.mkdir(parents=True)
    try:
        _save_parts(backbone, partial)
        card = {
            **backbone.card,
            "format": FORMAT,
            "backbone": backbone.name,
            "size": backbone.size,
            "image_channels": backbone.image_channels,
            "factor": backbone.factor,
            "prediction": backbone.prediction,
            "latents": {"mean": backbone.mean.flatten().tolist(), "std": backbone.std.flatten().tolist()},
            "prompts": list(backbone.words.prompts),
            "weights": {str(f.relative_to(partial)): sha256_file(f) for f in sorted(partial.rglob("*.safetensors"))},
        }
        if isinstance(backbone.words, FixedWords):
            card["text_width"] = backbone.words.table.shape[-1]
        text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False)
        (partial / CARD).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        partial.replace(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _save_parts(backbone: Backbone, folder: Path) -> None:
    words, scheduler = backbone.words, backbone.scheduler
    if isinstance(words, ClipWords) and backbone.controlnet is not None:
        pipeline = library("diffusers").StableDiffusionControlNetPipeline(
            vae=backbone.vae,
            text_encoder=words.encoder,
            tokenizer=words.tokenizer,
            unet=backbone.unet,
            controlnet=backbone.controlnet,
            scheduler=scheduler,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        pipeline.save_pretrained(folder, safe_serialization=True)
        return
    backbone.unet.save_pretrained(folder / "unet", safe_serialization=True)
    if backbone.controlnet is not None:
        backbone.controlnet.save_pretrained(folder / "controlnet", safe_serialization=True)
    scheduler.save_pretrained(folder / "scheduler")
    backbone.autoencoder.save(folder)
    words.save(folder)


def model_folder(path: Path) -> Path:
    """The model folder itself, or the one inside a run."""
    for folder in (path, path / MODEL):
        if (folder / CARD).is_file():
            return folder
    if (path / "manifest.json").is_file():
        raise UserError(f"{path}: a run without a finished model ({MODEL}/{CARD}); run its command again to finish it")
    raise UserError(f"{path}: no model folder: {CARD} is missing; give a run of `synth train` or its {MODEL}/")


def read_card(path: Path) -> dict[str, Any]:
    """`laworder.json` of a model folder or of the run around it."""
    file = model_folder(path) / CARD
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT or card.get("backbone") not in NAMES:
        raise UserError(f"{file}: not a model of format {FORMAT}, which this version reads")
    return card


def model_hash(card: dict[str, Any]) -> str:
    """One SHA-256 for all weights of a model, from those that its card lists."""
    lines = [f"{name}\0{digest}" for name, digest in sorted(card["weights"].items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def load_backbone(path: Path, device: torch.device) -> Backbone:
    """The backbone in a model folder, in eval mode, without gradients."""
    folder, card = model_folder(path), read_card(path)
    diffusers = library("diffusers")
    has_control = (folder / "controlnet").is_dir()
    try:
        unet = diffusers.UNet2DConditionModel.from_pretrained(folder, subfolder="unet")
        control = diffusers.ControlNetModel.from_pretrained(folder, subfolder="controlnet") if has_control else None
        scheduler = diffusers.DDIMScheduler.from_pretrained(folder, subfolder="scheduler")
        words = _words(folder, card)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: diffusers cannot load it: {str(error).splitlines()[0]}") from error
    backbone = Backbone(
        name=card["backbone"],
        size=card["size"],
        unet=unet,
        controlnet=control,
        autoencoder=_autoencoder(folder, card),
        words=words,
        scheduler=scheduler,
        mean=card["latents"]["mean"],
        std=card["latents"]["std"],
        card=card,
    )
    return backbone.requires_grad_(False).eval().to(device)


def _words(folder: Path, card: dict[str, Any]) -> Words:
    if (folder / "text_encoder").is_dir():
        words = ClipWords.load(folder)
        words.prompts = tuple(card["prompts"])
        return words
    return FixedWords(card["prompts"], width=card["text_width"])


def _autoencoder(folder: Path, card: dict[str, Any]) -> Autoencoder:
    if (folder / "vae").is_dir():
        return open_autoencoder(folder / "vae")
    return Pixels(channels=card["image_channels"], factor=card["factor"])
