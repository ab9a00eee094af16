"""The optional libraries of this room, imported when they are first needed."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from laworder.errors import MissingExtraError


def library(name: str, extra: str = "synth") -> Any:
    """The module `name`, or MissingExtraError that says how to get it."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, extra) from error
    if name == "transformers" and not sys.stderr.isatty():  # its bars, unlike ours, would fill log files
        module.utils.logging.disable_progress_bar()
    return module
