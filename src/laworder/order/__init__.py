"""The segmenter: pure tensors, no data and no training."""

from __future__ import annotations

from laworder.order.attention import BidirectionalAttention
from laworder.order.base import Segmenter
from laworder.order.model import ORDER

__all__ = ["ORDER", "BidirectionalAttention", "Segmenter"]
