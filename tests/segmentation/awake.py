"""Models whose every part matters to the output: fresh weights of N(0, 0.02) would hide a wrong attention or a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from laworder.order.attention import ChannelRMSNorm
from laworder.order.base import Segmenter
from laworder.segmenters import create


def awake(name: str, *, size: int = 64, **settings: Any) -> Segmenter:
    """A registered model with weights of ordinary size and batch norms that have seen noise, in eval mode."""
    torch.manual_seed(3)
    model = create(name, **settings)
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="linear")
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.3)
            part.momentum = None
        elif isinstance(part, ChannelRMSNorm):
            nn.init.uniform_(part.weight, 0.5, 1.5)
    model.preprocessing = replace(model.preprocessing, size=size)
    with torch.no_grad():
        model.train()(torch.randn(4, model.in_channels, 96, 96))
    return model.eval()
