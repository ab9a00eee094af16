"""Any registered segmenter back from its folder or repository, without knowing which one it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laworder.errors import UserError, nearest
from laworder.order.base import Segmenter
from laworder.order.hub import CONFIG, About, Preprocessing, checked_config, fetch, filled
from laworder.segmenters.registry import create

__all__ = ["About", "Preprocessing", "from_pretrained"]


def from_pretrained(
    source: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    map_location: str = "cpu",
) -> Segmenter:
    """The model that `save_pretrained` or `push_to_hub` wrote: a local folder, or the id of a Hub repository.

    It comes in eval mode, with its `preprocessing` and `about`.
    """
    download: dict[str, Any] = {
        "revision": revision,
        "token": token,
        "cache_dir": cache_dir,
        "local_files_only": local_files_only,
        "force_download": force_download,
    }
    path = fetch(str(source), CONFIG, download)
    try:
        config = checked_config(json.loads(path.read_text()), str(source))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    return filled(_built(config), str(source), config, map_location, download)


def _built(config: dict[str, Any]) -> Segmenter:
    if config.get("name"):
        return create(config["name"], **config["settings"])
    classes = {kind.__name__: kind for kind in _subclasses(Segmenter)}
    if config["class"] not in classes:
        raise UserError(f"{CONFIG} names the class {config['class']!r}{nearest(config['class'], classes)}")
    return classes[config["class"]](**config["settings"])


def _subclasses(kind: type[Segmenter]) -> list[type[Segmenter]]:
    return [k for direct in kind.__subclasses__() for k in (direct, *_subclasses(direct))]
