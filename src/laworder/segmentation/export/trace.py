"""From a module to a program of plain operations, whatever the size of the images that will come."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from laworder.errors import UserError
from laworder.segmentation.export.deployed import Deployed

EXAMPLE = (2, 97, 150)
"""Batch, height and width of the image that is traced; nothing in the program may depend on them."""
LEAST = 33
"""Shortest side that an exported file promises to take."""


def traced(deployed: Deployed) -> torch.export.ExportedProgram:
    """The program of a deployed model, with batch, height and width open."""
    image = torch.zeros(*EXAMPLE, deployed.model.in_channels, dtype=torch.uint8)
    sizes = dict.fromkeys(range(3), torch.export.Dim.DYNAMIC)
    with quiet():
        try:
            return torch.export.export(deployed.eval(), (image,), dynamic_shapes=(sizes,))
        except RuntimeError as error:  # a constraint that is violated is one too
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"this model cannot be exported for images of any size: {reason}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's own remarks about its exporters (deprecations, missing torchvision) from the user."""
    talkative = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = talkative.level
    talkative.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        talkative.setLevel(level)
