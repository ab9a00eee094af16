"""Prepared data as small as can be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from laworder.data.prepare import prepare
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import from_source


def prepared(folder: Path, count: int = 3) -> Path:
    """Drawn pairs with the pool `all`."""
    source = PhantomSource(count, size=32)
    raw = from_source(source, name="phantom", licence="drawn", classes=("background", "lesion"), rules={})
    prepare(dataclasses.replace(raw, pools=lambda _: {"all": list(source.names)}), folder)
    return folder
