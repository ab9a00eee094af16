"""Segmenters by name, each with a card that says what it is and how it differs from its paper."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.order.hub import Origin

Builder = TypeVar("Builder", bound=Callable[..., Segmenter])


@dataclass(frozen=True)
class Card:
    """What a reader of `laworder models` wants to know before choosing."""

    name: str
    summary: str
    paper: str
    """Where the idea comes from (authors, title, year)."""
    licence: str
    """Licence of the idea's public code. Ours is written from the description."""
    differs: str
    """What differs from the paper, in words; 'nothing that we know of' where nothing does."""


@dataclass(frozen=True)
class Entry:
    card: Card
    build: Callable[..., Segmenter]


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str, *, summary: str, paper: str, licence: str, differs: str = "nothing that we know of"
) -> Callable[[Builder], Builder]:
    """Put a keyword-only builder into the registry under `name`."""

    def add(build: Builder) -> Builder:
        assert name not in _ENTRIES, f"{name} is registered twice"
        card = Card(name=name, summary=summary, paper=paper, licence=licence, differs=differs)
        _ENTRIES[name] = Entry(card, build)
        return build

    return add


def create(name: str, **settings: Any) -> Segmenter:
    """A registered segmenter with fresh weights: `create("order_01", in_channels=3, classes=1)`."""
    about, build = entry(name).card, entry(name).build
    known = inspect.signature(build).parameters
    for setting in settings:
        if setting not in known:
            raise UserError(f"model {name!r} has no setting {setting!r}{nearest(setting, known)}")
    model = build(**settings)
    model.origin = Origin(name, settings, paper=about.paper, licence=about.licence, differs=about.differs)
    return model


def entry(name: str) -> Entry:
    """The card and the builder under a name."""
    if name not in _ENTRIES:
        raise UserError(f"unknown model {name!r}{nearest(name, _ENTRIES)}")
    return _ENTRIES[name]


def list_models(pattern: str = "*") -> list[str]:
    """Names of the registered segmenters, sorted; `pattern` filters like a shell's wildcard."""
    return sorted(fnmatch.filter(_ENTRIES, pattern))


def card(name: str) -> Card:
    """The card of a registered segmenter."""
    return entry(name).card
