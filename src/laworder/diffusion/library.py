"""The optional libraries of this room, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from laworder.errors import MissingExtraError


def library(name: str, extra: str = "synth") -> Any:
    """The module `name`, or MissingExtraError that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, extra) from error
