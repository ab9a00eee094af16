"""Segmenters by name: ORDER and everything it is compared with."""

from __future__ import annotations

from laworder.segmenters import egeunet, mkunet, pranet, skips, unet  # each registers its models
from laworder.segmenters.hub import About, Preprocessing, from_pretrained
from laworder.segmenters.profile import cost, model_table
from laworder.segmenters.registry import Card, card, create, list_models

__all__ = [
    "About",
    "Card",
    "Preprocessing",
    "card",
    "cost",
    "create",
    "egeunet",
    "from_pretrained",
    "list_models",
    "mkunet",
    "model_table",
    "pranet",
    "skips",
    "unet",
]
