"""Res2Net-50 v1b, 26w × 4s (Gao et al. 2019): PraNet's encoder, without its classifier.

A bottleneck splits its inner width into four scales and passes the sum of one scale and the previous scale's result on
to the next 3×3 convolution, so that one block sees several receptive fields. "v1b" is the deep stem of three 3×3
convolutions and an average pool before the shortcut's 1×1 convolution. Parameter names follow the released ImageNet
checkpoints, so that these load as they are.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from laworder.errors import UserError

SCALES = 4
BASE_WIDTH = 26
"""Channels of one scale in a block whose plain ResNet width is 64."""


class Bottle2neck(nn.Module):
    """1×1 to four scales, a 3×3 convolution on three of them, 1×1 out, shortcut.

    Scales are chained except in a stage's first block, which may stride; there the fourth is average-pooled instead.
    """

    def __init__(self, channels: int, planes: int, *, stride: int, first: bool) -> None:
        super().__init__()
        width, out = planes * BASE_WIDTH // 64, planes * 4
        self.width, self.first = width, first
        self.conv1 = nn.Conv2d(channels, width * SCALES, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width * SCALES)
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False) for _ in range(SCALES - 1)
        )
        self.bns = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(SCALES - 1))
        self.pool = nn.AvgPool2d(3, stride=stride, padding=1) if first else nn.Identity()
        self.conv3 = nn.Conv2d(width * SCALES, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Identity()
            if not first
            else nn.Sequential(
                nn.AvgPool2d(stride, stride), nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)
            )
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o p q"]:
        *scales, last = self.relu(self.bn1(self.conv1(x))).split(self.width, dim=1)
        parts: list[Tensor] = []
        for scale, conv, bn in zip(scales, self.convs, self.bns, strict=True):
            chained = scale if self.first or not parts else scale + parts[-1]
            parts.append(self.relu(bn(conv(chained))))
        out = self.bn3(self.conv3(torch.cat([*parts, self.pool(last)], dim=1)))
        return self.relu(out + self.downsample(x))


class Res2Net50(nn.Module):
    """Feature maps at 1/8, 1/16 and 1/32 of the input's side, with 512, 1024 and 2048 channels."""

    def __init__(self, *, in_channels: int = 3) -> None:
        super().__init__()
        stem: list[nn.Module] = []
        for i, o, stride in ((in_channels, 32, 2), (32, 32, 1)):
            conv = nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False)
            stem += [conv, nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        self.conv1 = nn.Sequential(*stem, nn.Conv2d(32, 64, 3, padding=1, bias=False))
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(
        self, x: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b 512 h8 w8"], Float[Tensor, "b 1024 h16 w16"], Float[Tensor, "b 2048 h32 w32"]]:
        x = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        eighth = self.layer2(x)
        sixteenth = self.layer3(eighth)
        return eighth, sixteenth, self.layer4(sixteenth)

    def load(self, source: str | Path) -> None:
        """Take ImageNet weights from a file (`.safetensors`, or torch's own format) or a hub id (`owner/name`).

        A classifier (`fc.*`) in them is left out; every other difference in names or shapes is refused.
        """
        weights = {name: t for name, t in read_weights(source).items() if not name.startswith("fc.")}
        own = self.state_dict()
        # Checkpoints older than PyTorch 0.4.1 lack the batch counters, which plain batch norm never reads.
        missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
        strangers = [name for name in weights if name not in own]
        shapes = [name for name in own if name in weights and own[name].shape != weights[name].shape]
        for names, wrong in ((missing, "lacks"), (strangers, "has besides"), (shapes, "has in another shape")):
            if names:
                shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
                raise UserError(
                    f"backbone_weights {source}: {wrong} {len(names)} tensors of Res2Net-50 v1b ({shown}); "
                    "give a res2net50_v1b_26w_4s (in timm: res2net50d) ImageNet checkpoint"
                )
        self.load_state_dict(own | weights)


def read_weights(source: str | Path) -> dict[str, Tensor]:
    """A flat dictionary of tensors from a local file, or from `model.safetensors` of a hub repository."""
    path = Path(source)
    if not path.is_file():
        path = _download(str(source))
    try:
        if path.suffix == ".safetensors":
            weights = load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises on a damaged or foreign file has no common base but this
        raise UserError(f"backbone_weights {source}: cannot be read as safetensors or torch weights") from error
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"backbone_weights {source}: holds something else than a dictionary of tensors")
    return weights


def _download(hub_id: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    if hub_id.count("/") != 1 or Path(hub_id).suffix in (".pth", ".pt", ".bin", ".safetensors"):
        raise UserError(f"backbone_weights {hub_id}: no such file, and not a hub id of the form owner/name")
    try:
        return Path(hf_hub_download(hub_id, "model.safetensors"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"backbone_weights {hub_id}: no such file here, and its model.safetensors cannot be had from the hub; "
            "check the spelling and the network, or give a path"
        ) from error


def _stage(channels: int, planes: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = Bottle2neck(channels, planes, stride=stride, first=True)
    rest = [Bottle2neck(planes * 4, planes, stride=1, first=False) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)
