#!/usr/bin/env python3
"""A folder in the format of Stable Diffusion 1.5 with random weights: for tests, and to measure without the real ones.

    python tools/random_sd15.py OUT          small widths, a few MB
    python tools/random_sd15.py OUT --full   the real widths: 860 M weights in the UNet

What it draws means nothing; layout, classes and code path are those of the real one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

UNET = {
    "small": {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "attention_head_dim": 4,
              "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
              "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 32, "sample_size": 8},
    "full": {"block_out_channels": (320, 640, 1280, 1280), "attention_head_dim": 8, "cross_attention_dim": 768,
             "sample_size": 64},
}  # fmt: skip
VAE = {
    "small": {"block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4, "layers_per_block": 1, "sample_size": 64},
    "full": {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "sample_size": 512},
}
TEXT = {
    "small": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2},
    "full": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
}
NOISE = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
    "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, "prediction_type": "epsilon",
}  # fmt: skip


def make(folder: Path, *, size: str = "small", seed: int = 0) -> Path:
    """Write the folder; the same bits for the same seed."""
    import torch
    from diffusers import AutoencoderKL, PNDMScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(seed)
    blocks = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    words = vocabulary()
    UNet2DConditionModel(**UNET[size]).save_pretrained(folder / "unet")
    AutoencoderKL(
        down_block_types=blocks[0], up_block_types=blocks[1], latent_channels=4, scaling_factor=0.18215, **VAE[size]
    ).save_pretrained(folder / "vae")
    text = CLIPTextConfig(
        vocab_size=len(words), bos_token_id=len(words) - 2, eos_token_id=len(words) - 1, pad_token_id=1,
        max_position_embeddings=77, hidden_act="quick_gelu", **TEXT[size],
    )  # fmt: skip
    CLIPTextModel(text).save_pretrained(folder / "text_encoder")
    PNDMScheduler(skip_prk_steps=True, **{k: v for k, v in NOISE.items() if k != "clip_sample"}).save_pretrained(
        folder / "scheduler"
    )
    tokenizer(folder / "tokenizer", words)
    index(folder)
    return folder


def vocabulary() -> list[str]:
    """Every byte as a token, alone and at the end of a word: CLIP's own alphabet, without its merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    return [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]


def tokenizer(folder: Path, words: list[str]) -> None:
    """The files of a CLIP tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    config: dict[str, Any] = {**special, "pad_token": "<|endoftext|>", "model_max_length": 77, "do_lower_case": True}
    (folder / "special_tokens_map.json").write_text(json.dumps(special), encoding="utf-8")
    named = {**config, "tokenizer_class": "CLIPTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")


def index(folder: Path) -> None:
    """`model_index.json`, as the released folder has it, without the safety checker."""
    parts = {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.36.0", "feature_extractor": [None, None],
        "safety_checker": [None, None], "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
    }  # fmt: skip
    (folder / "model_index.json").write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--full", action="store_true", help="the real widths")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make(given.out, size="full" if given.full else "small", seed=given.seed)
