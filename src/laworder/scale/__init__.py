"""Many pieces of work, on this machine or on many: in their order, each once, whatever dies in between."""

from __future__ import annotations

from laworder.scale.fan import checked_place, fan_out
from laworder.scale.shards import parse_shard, share_of
from laworder.scale.tasks import Outcome, Task, in_order

__all__ = ["Outcome", "Task", "checked_place", "fan_out", "in_order", "parse_shard", "share_of"]
