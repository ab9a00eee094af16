"""Doing one job: lock its folder, run its command there, write down how it ended. Safe to call again at any time."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from laworder.config import build
from laworder.errors import UserError
from laworder.paper.store import begin, finish, read_record
from laworder.runs import Lock, LockedError, WriteError


def perform(order: Mapping[str, Any]) -> str:
    """Nothing where the job is done (now, or before), else what went wrong.

    LockedError: another process is at it. A signal that stops the command passes through; the job goes on next time.
    """
    folder = Path(order["folder"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot make {folder}: {error.strerror}") from error
    with Lock(folder):
        known = read_record(folder)
        if known is not None and known.get("outcome") == "done" and known.get("digest") == order["digest"]:
            return ""
        record, began = begin(order), time.monotonic()
        try:
            message = _run(order, folder)
        except (LockedError, WriteError):
            raise
        except UserError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001 (one broken job must not end a study of hundreds)
            message = f"{type(error).__name__}: {error}"
        finish(order, record, f"failed: {message}" if message else "done", time.monotonic() - began)
        return message


def _run(order: Mapping[str, Any], folder: Path) -> str:
    module = importlib.import_module(order["module"])
    config = build(module.Config, dict(order["values"]))
    with (folder / "log.txt").open("a", encoding="utf-8") as log, redirect_stdout(log):
        code = module.run(config) or 0
    return f"`{order['command']}` ended with exit code {code}; see {folder / 'log.txt'}" if code else ""
