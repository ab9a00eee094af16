"""A progress bar with the time left, on stderr; nothing at all where stderr is not a terminal."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm


class Progress(tqdm):  # type: ignore[type-arg]
    """tqdm that is silent in logs and pipes, and starts no thread: loader workers are forked beside it."""

    monitor_interval = 0

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # disable=None is tqdm's "only on a terminal".
        super().__init__(*arguments, **{"disable": None, "dynamic_ncols": True, **settings})
