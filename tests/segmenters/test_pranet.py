"""PraNet on Res2Net-50 v1b: counts, four outputs, reverse attention, and weights from outside."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from laworder.errors import UserError
from laworder.segmenters.losses import deep_supervision_loss
from laworder.segmenters.pranet import PraNet, ReverseAttention, background
from laworder.segmenters.registry import card, create
from laworder.segmenters.res2net import Bottle2neck, Res2Net50, read_weights


def conv_flops(model: nn.Module, *, side: int = 256) -> int:
    """2·numel(out)·(Cin/groups)·k², summed over the 2-D convolutions that run; the model and its input have no data."""
    total = 0

    def add(module: nn.Conv2d, _: object, out: Tensor) -> None:
        nonlocal total
        height, width = module.kernel_size
        total += 2 * out.numel() * (module.in_channels // module.groups) * height * width

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(add)
    model.eval()(torch.zeros(1, 3, side, side, device="meta"))
    return total


@pytest.fixture(scope="module")
def model() -> PraNet:
    torch.manual_seed(0)
    return PraNet()


@pytest.fixture(scope="module")
def imagenet() -> dict[str, Tensor]:
    """What a released checkpoint holds: the encoder's tensors by their names, and a classifier."""
    torch.manual_seed(1)
    weights = {name: torch.randn_like(t) if t.is_floating_point() else t for name, t in _encoder().state_dict().items()}
    return weights | {"fc.weight": torch.zeros(10, 2048), "fc.bias": torch.zeros(10)}


def _encoder() -> Res2Net50:
    with torch.device("meta"):
        skeleton = Res2Net50()
    return skeleton.to_empty(device="cpu")


def test_counts_are_the_papers() -> None:
    with torch.device("meta"):
        model = create("pranet")
        flops = conv_flops(model)
    counted = sum(p.numel() for p in model.parameters())
    assert counted == 30_498_319
    assert counted + 2048 * 1000 + 1000 == 32_547_319  # with the classifier that the authors carry along
    assert flops == 13_754_433_536
    assert f"{flops / 1e9:.2f}" == "13.75"


@pytest.mark.parametrize("deep", [False, True])
def test_every_parameter_learns(model: PraNet, deep: bool) -> None:
    """From all four outputs, and from the finest alone."""
    x, mask = torch.rand(2, 3, 64, 64), (torch.rand(2, 1, 64, 64) > 0.7).float()
    model.train().zero_grad()
    outputs = model.deep_logits(x) if deep else [model(x)]
    deep_supervision_loss(outputs, mask).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("size", [(64, 64), (33, 71)])
def test_four_outputs_at_the_inputs_size_finest_first(model: PraNet, size: tuple[int, int]) -> None:
    model.eval()
    x = torch.rand(2, 3, *size)
    with torch.no_grad():
        outputs = model.deep_logits(x)
        assert [tuple(out.shape) for out in outputs] == [(2, 1, *size)] * len(model.deep_weights)
        assert torch.equal(outputs[0], model(x))
        if size == (64, 64):
            for out, side, scale in zip(outputs, model.side_logits(x), (8, 16, 32, 8), strict=True):
                assert torch.allclose(out, F.interpolate(side, scale_factor=scale, mode="bilinear"), atol=1e-5)
        assert torch.allclose(model(x[:1]), outputs[0][:1], rtol=1e-3, atol=1e-3)


def test_other_channels_classes_and_widths() -> None:
    model = PraNet(in_channels=1, classes=3, width=8).eval()
    with torch.no_grad():
        x = torch.rand(1, 1, 64, 96)
        assert [tuple(s.shape[1:]) for s in model.side_logits(x)] == [(3, 8, 12), (3, 4, 6), (3, 2, 3), (3, 8, 12)]
        assert torch.allclose(model.probabilities(x).sum(dim=1), torch.ones(1, 64, 96), atol=1e-5)


def test_background_is_what_the_guess_leaves_out() -> None:
    logits = torch.randn(2, 1, 4, 4)
    assert torch.allclose(background(logits), 1 - torch.sigmoid(logits), atol=1e-6)
    logits = torch.randn(2, 3, 4, 4)
    assert torch.equal(background(logits), torch.softmax(logits, dim=1)[:, :1])


def test_reverse_attention_looks_only_where_the_guess_does_not() -> None:
    attend = ReverseAttention(6, 4, 1, depth=2, kernel=3, last=3).eval()
    features = torch.randn(1, 6, 8, 8), torch.randn(1, 6, 8, 8)
    sure, unsure = torch.full((1, 1, 4, 4), 200.0), torch.full((1, 1, 4, 4), -200.0)
    assert torch.equal(attend(features[0], sure), attend(features[1], sure))
    assert not torch.allclose(attend(features[0], unsure), attend(features[1], unsure))
    assert torch.allclose(attend(features[0], unsure), attend.layers(features[0]) - 200)


def test_scales_are_chained_but_in_a_stages_first_block() -> None:
    """The block by hand, a scale at a time."""
    for first, stride in ((False, 1), (True, 2)):
        block = Bottle2neck(256, 64, stride=stride, first=first).eval()
        x = torch.randn(1, 256, 8, 8)
        a, b, c, d = F.relu(block.bn1(block.conv1(x))).chunk(4, dim=1)
        p = F.relu(block.bns[0](block.convs[0](a)))
        q = F.relu(block.bns[1](block.convs[1](b if first else b + p)))
        r = F.relu(block.bns[2](block.convs[2](c if first else c + q)))
        last = F.avg_pool2d(d, 3, stride=2, padding=1) if first else d
        out = block.bn3(block.conv3(torch.cat([p, q, r, last], dim=1)))
        shortcut = block.downsample[1:](F.avg_pool2d(x, 2)) if isinstance(block.downsample, nn.Sequential) else x
        assert torch.allclose(block(x), F.relu(out + shortcut), atol=1e-5)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_from_a_file(suffix: str, imagenet: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / f"res2net{suffix}"
    old = {name: t for name, t in imagenet.items() if not name.endswith("num_batches_tracked")}
    save_file(old, path) if suffix == ".safetensors" else torch.save(old, path)
    loaded = PraNet(backbone_weights=path).backbone.state_dict()
    for name, tensor in old.items():
        assert name.startswith("fc.") or torch.equal(loaded[name], tensor), name


def test_weights_from_the_hub(imagenet: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save_file(imagenet, path)
    asked: list[tuple[str, str]] = []

    def download(repository: str, name: str) -> str:
        asked.append((repository, name))
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert read_weights("owner/res2net50d").keys() == imagenet.keys()
    assert asked == [("owner/res2net50d", "model.safetensors")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv1.0.weight": None}, r"lacks 1 tensors of Res2Net-50 v1b \(conv1\.0\.weight\)"),
        ({"layer5.weight": torch.zeros(1)}, r"has besides 1 tensors .*\(layer5\.weight\)"),
        ({"bn1.weight": torch.zeros(3)}, r"has in another shape 1 tensors .*\(bn1\.weight\)"),
    ],
)
def test_other_weights_are_refused_by_name(
    change: dict[str, Tensor | None], message: str, imagenet: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {name: t for name, t in (imagenet | change).items() if t is not None}
    monkeypatch.setattr("laworder.segmenters.res2net.read_weights", lambda _: weights)
    with pytest.raises(UserError, match=message):
        _encoder().load("a.safetensors")


@pytest.mark.parametrize("name", ["broken.safetensors", "broken.pth", "list.pth", "foreign.pth"])
def test_files_that_hold_no_weights_are_refused_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "list.pth":
        torch.save([torch.zeros(1)], path)
    elif name == "foreign.pth":
        torch.save(nn.Linear(1, 1), path)  # a whole module, which only code-running loaders read
    else:
        path.write_bytes(b"no weights here")
    with pytest.raises(UserError, match=name):
        read_weights(path)


def test_sources_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no such file, and not a hub id"):
        read_weights(tmp_path / "nothing.pth")

    def offline(*_: str) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(UserError, match=r"owner/name: no such file here, and its model\.safetensors"):
        read_weights("owner/name")


def test_bad_settings_are_named() -> None:
    with pytest.raises(UserError, match="backbone_weights are for in_channels=3, not 1"):
        create("pranet", in_channels=1, backbone_weights="owner/name")
    with pytest.raises(UserError, match="width must be at least 1"):
        create("pranet", width=0)


def test_its_card_says_that_the_papers_is_another() -> None:
    assert "not its authors' PraNet" in card("pranet").differs
