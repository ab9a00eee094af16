"""An exported ONNX file in the place of the model that it came from: predicts, evaluates, judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from laworder.errors import UserError
from laworder.order.base import Segmenter
from laworder.order.hub import Preprocessing
from laworder.runs.files import sha256_file
from laworder.segmentation.export.facts import FORMAT, preprocessing_of
from laworder.segmentation.export.runtimes import onnx_session


class ExportedSegmenter(Segmenter):
    """The probabilities of a file of `seg export`, computed by ONNX Runtime on the CPU."""

    stride = 1

    def __init__(self, path: Path) -> None:
        session = onnx_session(path)
        facts: dict[str, str] = session.get_modelmeta().custom_metadata_map
        if facts.get("laworder_format") != FORMAT:
            raise UserError(f"{path} was not written by this version's `laworder seg export`; export it again")
        super().__init__(in_channels=int(facts["channels"]), classes=int(facts["classes"]))
        self.session, self.path = session, path
        # Whoever tells models apart by what they hold (provenance does) tells files apart too.
        self.register_buffer("file_sha256", torch.tensor(list(bytes.fromhex(sha256_file(path))), dtype=torch.uint8))
        own = preprocessing_of(facts)
        # The file normalises by itself: what reaches `probabilities` is scaled back to 0 … 255.
        same = (0.0,) * self.in_channels, (1 / 255,) * self.in_channels
        self.preprocessing = Preprocessing(own.size, *same, own.threshold)

    def hub_config(self) -> dict[str, Any]:
        raise UserError(f"{self.path} is an exported file: copy it, it cannot be saved as a model")

    def probabilities(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        image = x.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
        _, probability = self.session.run(None, {"image": image})
        return torch.from_numpy(probability).to(x.device)

    def logits(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        p = self.probabilities(x)
        return torch.logit(p) if self.classes == 1 else p.log()
