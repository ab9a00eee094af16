"""Prompts → embeddings: CLIP as Stable Diffusion has it, or a fixed table for backbones that train from nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laworder.diffusion.library import library
from laworder.errors import UserError, nearest
from laworder.runs import generator


class Words(nn.Module, ABC):
    """What turns prompts into what the UNet's cross-attention reads. `prompts`: those it was trained with."""

    prompts: tuple[str, ...]

    @abstractmethod
    def embed(self, prompts: Sequence[str]) -> Float[Tensor, "b tokens width"]:
        """One embedding a prompt. The empty prompt is the one that guidance starts from."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what diffusers' layout wants of it into a model folder."""


class FixedWords(Words):
    """One vector a prompt, drawn from a hash of its text: the network learns what it means. The empty prompt is 0.

    There is no text encoder to generalise, so a prompt that training did not see means nothing and is refused.
    """

    table: Tensor

    def __init__(self, prompts: Sequence[str], *, width: int) -> None:
        super().__init__()
        self.prompts = tuple(dict.fromkeys(["", *prompts]))
        rows = [torch.randn(1, width, generator=generator(0, stream=f"prompt/{p}")) for p in self.prompts[1:]]
        self.register_buffer("table", torch.stack([torch.zeros(1, width), *rows]), persistent=False)

    def embed(self, prompts: Sequence[str]) -> Float[Tensor, "b tokens width"]:
        for prompt in prompts:
            if prompt not in self.prompts:
                known = [p for p in self.prompts if p]
                raise UserError(
                    f"prompt {prompt!r} is none that this backbone was trained with{nearest(prompt, known)}"
                )
        return self.table[[self.prompts.index(prompt) for prompt in prompts]]

    def save(self, folder: Path) -> None:
        """Nothing: `laworder.json` lists the prompts, and the vectors follow from them."""


class ClipWords(Words):
    """CLIP's text encoder with its tokenizer; each prompt is cut or padded to the tokenizer's length."""

    def __init__(self, encoder: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.encoder, self.tokenizer = encoder.eval().requires_grad_(False), tokenizer
        self.prompts: tuple[str, ...] = ()

    @classmethod
    def load(cls, folder: str | Path, **where: Any) -> ClipWords:
        """`text_encoder/` and `tokenizer/` of a diffusers folder or hub id."""
        transformers = library("transformers")
        encoder = transformers.CLIPTextModel.from_pretrained(folder, subfolder="text_encoder", **where)
        return cls(encoder, transformers.CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer", **where))

    @torch.no_grad()
    def embed(self, prompts: Sequence[str]) -> Float[Tensor, "b tokens width"]:
        length = self.tokenizer.model_max_length
        words = self.tokenizer(
            list(prompts), padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        device = next(self.encoder.parameters()).device
        return self.encoder(words.input_ids.to(device))[0]

    def save(self, folder: Path) -> None:
        encoder: Any = self.encoder
        encoder.save_pretrained(folder / "text_encoder", safe_serialization=True)
        self.tokenizer.save_pretrained(folder / "tokenizer")
