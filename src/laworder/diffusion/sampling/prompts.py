"""Which prompt an image is drawn with: as its mask would have been prompted in training, or one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from laworder.errors import UserError, nearest


@dataclass(frozen=True)
class Prompts:
    """everywhere: the prompt of masks without a class of their own; classes: of lesion class 1, 2, …"""

    everywhere: str
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, card: Mapping[str, Any], wanted: str | None, *, highest: int) -> Prompts:
        """wanted: one for all images; highest: the largest class in the masks. UserError where the model knows no such
        prompt, or has none for a class."""
        if wanted is not None:
            _check(wanted, card)
            return cls(wanted)
        classes: Sequence[str] = card.get("class_prompts", [])
        if classes and highest > len(classes):
            raise UserError(
                f"the masks hold lesion class {highest}, but the model was trained with prompts for {len(classes)}: "
                "give one --prompt for all images, or masks of those classes"
            )
        return cls(str(card.get("prompt", "")), tuple(classes))

    def __call__(self, mask: UInt8[np.ndarray, "h w"]) -> str:
        """That of the class that covers most of the mask, the lower one where two tie."""
        if not self.classes or not mask.any():
            return self.everywhere
        sizes = np.bincount(mask.ravel(), minlength=len(self.classes) + 1)[1:]
        return self.classes[int(sizes.argmax())]


def _check(prompt: str, card: Mapping[str, Any]) -> None:
    """A model without a text encoder knows no prompt but its own."""
    known = card["prompts"]
    if card["backbone"] != "sd15" and prompt not in known:
        words = [p for p in known if p]
        raise UserError(f"prompt: {prompt!r} is none that this model was trained with{nearest(prompt, words)}")
