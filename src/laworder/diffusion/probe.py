"""Is the control used at all? The same noise under other masks, and what that changes in the picture.

Three questions of each fixed mask: what if it were blank, shifted by a third of the side, or swapped for the next one?
The answer is the mean absolute change of the pixels that were lesion and are no longer (`inside`), and of those that
are lesion under neither mask (`outside`), both in units of the picture's own standard deviation. A control that works
changes the inside, and changes it more than the outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

KINDS = ("blank", "shifted", "swapped")
LEAST = 0.05
"""Changes of the inside below this share of the picture's standard deviation are none to the eye."""
LOCAL = 1.25
"""From here on the inside changes more than the outside."""
NAMES = tuple(f"val_probe_{kind}_{where}" for kind in KINDS for where in ("inside", "outside"))


def probes(masks: Float[Tensor, "n 1 h w"]) -> dict[str, Float[Tensor, "n 1 h w"]]:
    """The masks that stand in for these."""
    third = masks.shape[-1] // 3
    return {
        "blank": torch.zeros_like(masks),
        "shifted": masks.roll((third, third), dims=(-2, -1)),
        "swapped": masks.roll(1, dims=0),
    }


def changes(
    own: Float[Tensor, "n c h w"],
    others: Mapping[str, Float[Tensor, "n c h w"]],
    masks: Float[Tensor, "n 1 h w"],
) -> dict[str, float]:
    """`inside` and `outside` of every kind, under `NAMES`; 0 where no pixel is of that sort."""
    spread = own.flatten(1).std(dim=1).clamp(min=1e-6)[:, None, None, None]
    found: dict[str, float] = {}
    for kind, shown in probes(masks).items():
        moved = ((others[kind] - own).abs() / spread).mean(dim=1, keepdim=True)
        before, after = masks > 0, shown > 0
        found[f"val_probe_{kind}_inside"] = _mean(moved, before & ~after)
        found[f"val_probe_{kind}_outside"] = _mean(moved, ~before & ~after)
    return found


def _mean(values: Float[Tensor, "n 1 h w"], where: Bool[Tensor, "n 1 h w"]) -> float:
    return float(values[where].mean()) if bool(where.any()) else 0.0


def verdict(found: Mapping[str, float]) -> str:
    """The probe in words."""
    inside = {kind: found[f"val_probe_{kind}_inside"] for kind in KINDS}
    outside = {kind: found[f"val_probe_{kind}_outside"] for kind in KINDS}
    told = ", ".join(f"{kind} {inside[kind]:.2f} inside and {outside[kind]:.2f} outside" for kind in KINDS)
    units = f"changes in units of the picture's standard deviation: {told}"
    if not all(math.isfinite(value) for value in (*inside.values(), *outside.values())):
        return f"The control cannot be judged: the images hold values that are no numbers ({units})."
    deaf = [kind for kind in KINDS if inside[kind] < LEAST]
    if len(deaf) == len(KINDS):
        return (
            f"The control is ignored: blank, shifted and swapped masks leave the pictures as they are ({units}). Train "
            "longer, raise the learning rate, or start from a trained prior."
        )
    if deaf:
        return f"The control is ignored in part: {' and '.join(deaf)} masks change nothing inside lesions ({units})."
    vague = [kind for kind in KINDS if inside[kind] < LOCAL * outside[kind]]
    if vague:
        return (
            f"The control is used, but not yet where it should be: {' and '.join(vague)} masks change lesions hardly "
            f"more than the rest of the picture ({units})."
        )
    return f"The control is used: other masks change the picture, most of all inside the lesions ({units})."
