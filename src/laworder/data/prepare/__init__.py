"""From a download to prepared data: `prepare(raw, folder)`."""

from laworder.data.prepare.writer import prepare

__all__ = ["prepare"]
