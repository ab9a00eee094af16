"""Networks that turn an image into numbers, by name, each labelled by what it is.

inception                   Inception-2015, the network behind FID
timm:NAME                   a model of timm, where timm is installed
FOLDER or OWNER/NAME        any vision model of transformers, from a folder or the Hugging Face Hub
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from laworder.errors import UserError
from laworder.evaluation.fast import convolution_runner
from laworder.evaluation.resizing import RULES, SIDE
from laworder.evaluation.weights import REMEDY, find_inception, load_inception, weights_digest

INCEPTION = "inception"


@dataclass(frozen=True)
class Extractor:
    """A frozen network with what must be done to an image before it.

    label:   what it is, in words
    rule:    how an image is brought to the network's size, in words
    digest:  changes where the numbers would: of weights and rule
    prepare: one image of any size → the network's input; called from several threads
    embed:   a batch of inputs, on the network's device → one row each
    clip:    whether it is a CLIP, and similarities by it may be called CLIP-I
    """

    label: str
    rule: str
    digest: str
    prepare: Callable[[UInt8[np.ndarray, "h w c"]], Float32[Tensor, "3 a b"]]
    embed: Callable[[Float[Tensor, "n 3 a b"]], Float[Tensor, "n d"]]
    clip: bool = False


def extractor(
    name: str, *, device: torch.device, inception: Path | None = None, rule: str = "pytorch-fid"
) -> Extractor:
    """The extractor called `name`; see the module's first lines.

    inception: file of the weights of Inception-2015; None looks where pytorch-fid and torch-fidelity leave theirs
    rule:      how images reach Inception's size: pytorch-fid or torch-fidelity
    """
    if name == INCEPTION:
        return _inception(inception, rule, device)
    if name.startswith("timm:"):
        from laworder.evaluation.timm_models import timm_extractor

        return timm_extractor(name.removeprefix("timm:"), device)
    from laworder.evaluation.transformers_models import vision_extractor

    return vision_extractor(name, device)


def _inception(path: Path | None, rule: str, device: torch.device) -> Extractor:
    path = path or find_inception()
    if path is None:
        raise UserError(f"the weights of Inception-2015 are not here: {REMEDY}")
    network = load_inception(path).to(device)
    digest = f"inception-2015 {rule} {weights_digest(network)}"
    return Extractor(
        "Inception-2015", f"{rule}: to 299×299", digest, RULES[rule], convolution_runner(network, device, side=SIDE)
    )
