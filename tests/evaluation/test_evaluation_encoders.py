"""Encoders by name, CLIP-I paired and as a set, precision and coverage, on a CLIP and a ViT of random weights."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from evaluation.tiny import CPU, Listed, context, phantoms, tiny_clip, tiny_vit
from laworder.data.pairs import Pair
from laworder.errors import UserError
from laworder.evaluation import clip_i, fidelity, prdc, realism
from laworder.evaluation.extractors import extractor
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.pairing import partners
from laworder.evaluation.transformers_models import framing_of
from laworder.metrics.frechet import frechet_of, moments


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip(tmp_path_factory.mktemp("clip") / "tiny-clip")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vit(tmp_path_factory.mktemp("vit") / "tiny-vit")


@pytest.fixture(scope="module")
def real() -> Listed:
    return Listed(phantoms(30, seed=0))


@pytest.fixture(scope="module")
def made(real: Listed) -> Listed:
    """Other patients under the real masks' names, in another order."""
    others = phantoms(24, seed=7)
    named = [replace(pair, name=real.names[k], mask=real.pairs[k].mask) for k, pair in enumerate(others)]
    return Listed(named[::-1])


def test_clip_embeddings_are_the_models_own(clip: Path, real: Listed, tmp_path: Path) -> None:
    found = FeatureStore(tmp_path, device=CPU).of(real, str(clip))
    assert found.shape == (30, 12)
    one = extractor(str(clip), device=CPU)
    assert one.clip
    assert one.label == "tiny-clip"
    pixels = one.prepare(real.pairs[3].image)[None]
    assert pixels.shape == (1, 3, 32, 32)
    theirs = CLIPImageProcessorPil.from_pretrained(clip)(real.pairs[3].image, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(pixels, theirs, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        expected = CLIPModel.from_pretrained(clip).eval().vision_model(pixels).pooler_output
        expected = CLIPModel.from_pretrained(clip).eval().visual_projection(expected)
    np.testing.assert_allclose(found[3], expected[0].numpy(), rtol=1e-4, atol=1e-6)


def test_clip_i_is_the_mean_cosine_with_the_image_of_the_same_mask(
    clip: Path, real: Listed, made: Listed, tmp_path: Path
) -> None:
    section = clip_i.measure(context(made, real, tmp_path, clip=str(clip)))
    features = FeatureStore(tmp_path / "cache", device=CPU)
    a, b = features.of(made, str(clip)), features.of(real, str(clip))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    paired = [a[i] @ b[real.names.index(name)] for i, name in enumerate(made.names)]
    assert section.title == "CLIP-I"
    assert section.rows[0].measure == "CLIP-I, paired"
    assert section.rows[0].metric == "clip_i"
    assert section.rows[0].value == pytest.approx(np.mean(paired), rel=1e-5)
    assert section.rows[1].value == pytest.approx((a @ b.T).mean(), rel=1e-5)
    own = b @ b.T
    assert section.values["set"]["real_with_real"] == pytest.approx((own.sum() - 30) / (30 * 29), rel=1e-5)
    json.dumps(section.values)


def test_another_encoder_is_never_called_clip(vit: Path, real: Listed, made: Listed, tmp_path: Path) -> None:
    section = clip_i.measure(context(made, real, tmp_path, encoder=str(vit)))
    said = " ".join([section.title, *section.words, *(row.measure + row.beside for row in section.rows)])
    assert "CLIP" not in said
    assert "tiny-vit" in said
    assert all(row.metric == "" for row in section.rows)


def test_without_an_encoder_it_is_said_what_to_give(real: Listed, made: Listed, tmp_path: Path) -> None:
    for section, remedy in (
        (clip_i.measure(context(made, real, tmp_path)), "give --clip"),
        (prdc.measure(context(made, real, tmp_path)), "give --inception or --encoder"),
        (fidelity.measure(context(made, real, tmp_path)), "pip download"),
    ):
        assert remedy in " ".join(section.words)


def test_partners_are_found_by_mask_where_names_differ(real: Listed, made: Listed) -> None:
    renamed = Listed([replace(pair, name=f"sample-{i}") for i, pair in enumerate(made.pairs)])
    assert partners(renamed, real) == [real.names.index(name) for name in made.names]
    stranger = Listed([replace(made.pairs[0], name="x", mask=np.zeros_like(made.pairs[0].mask))])
    assert partners(stranger, real) == [None]


def test_the_second_network_gives_distances_of_its_own(vit: Path, real: Listed, made: Listed, tmp_path: Path) -> None:
    section = fidelity.measure(context(made, real, tmp_path, encoder=str(vit)))
    features = FeatureStore(tmp_path / "cache", device=CPU)
    a, b = features.of(made, str(vit)), features.of(real, str(vit))
    found = section.values["networks"][str(vit)]
    assert found["fid"] == pytest.approx(frechet_of(a, b))
    low, high = found["fid_interval_95"]
    assert low < found["fid"] < high
    assert found["floor"]["images"] == 15
    assert (found["generated"], found["real"]) == (24, 30)
    distance = next(row for row in section.rows if row.measure.startswith("Fréchet distance, tiny-vit"))
    assert "24 generated, 30 real" in distance.beside
    assert "real half vs real half (15 each)" in distance.beside
    assert distance.metric == ""
    json.dumps(section.values)


def test_precision_and_coverage_stand_beside_those_of_real_halves(
    vit: Path, real: Listed, made: Listed, tmp_path: Path
) -> None:
    section = prdc.measure(context(made, real, tmp_path, encoder=str(vit)))
    assert [row.measure.split(",")[0] for row in section.rows] == ["Precision", "Recall", "Density", "Coverage"]
    assert all("real half vs real half" in row.beside for row in section.rows)
    same = prdc.measure(context(real, real, tmp_path, encoder=str(vit)))
    assert same.values["precision"] == same.values["coverage"] == 1.0
    few = prdc.measure(context(Listed(made.pairs[:5]), real, tmp_path, encoder=str(vit)))
    assert few.values["measured"] is False


def test_lesions_of_the_same_kind_are_near_and_darkened_ones_are_named(real: Listed, tmp_path: Path) -> None:
    fresh = Listed(phantoms(30, seed=3))
    near = realism.measure(context(fresh, real, tmp_path))
    dark = Listed(
        [replace(p, image=np.where(p.mask[..., None] > 0, p.image // 2, p.image).astype(np.uint8)) for p in fresh.pairs]
    )
    far = realism.measure(context(dark, real, tmp_path))
    assert near.values["mean_distance"] < far.values["mean_distance"]
    assert far.values["statistics"]["mean inside"]["shift"] < -1
    assert "most in " in far.words[0]
    empty = Listed([replace(p, mask=np.zeros_like(p.mask)) for p in fresh.pairs])
    assert realism.measure(context(empty, real, tmp_path)).values["measured"] is False


def test_statistics_go_to_and_come_from_pytorch_fids_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    found = moments(x)
    fidelity.save_statistics(tmp_path / "own.npz", found)
    with np.load(tmp_path / "own.npz") as file:
        np.testing.assert_allclose(file["mu"], x.mean(0), rtol=1e-5)
        np.testing.assert_allclose(file["sigma"], np.cov(x, rowvar=False), rtol=1e-5)
    np.savez(tmp_path / "theirs.npz", mu=x.mean(0), sigma=np.cov(x, rowvar=False))
    back = fidelity.load_statistics(tmp_path / "theirs.npz")
    torch.testing.assert_close(back.covariance, found.covariance, rtol=1e-5, atol=1e-8)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    with pytest.raises(UserError, match=r"bad\.npz: not statistics for FID"):
        fidelity.load_statistics(tmp_path / "bad.npz")
    np.savez(tmp_path / "odd.npz", mu=np.zeros(3), sigma=np.zeros((2, 2)))
    with pytest.raises(UserError, match="do not fit together"):
        fidelity.load_statistics(tmp_path / "odd.npz")


def test_names_that_are_no_encoder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="'resnet' is no folder; give inception, timm:NAME"):
        extractor("resnet", device=CPU)
    with pytest.raises(UserError, match="no vision model"):
        extractor(str(tmp_path), device=CPU)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"needs timm, which is not installed: pip install timm"):
        extractor("timm:resnet18", device=CPU)
    with pytest.raises(UserError, match=r"none\.pth: no such file; .*pip download"):
        extractor("inception", device=CPU, inception=tmp_path / "none.pth")


def test_a_network_with_weights_that_its_file_lacks_is_not_used(vit: Path, real: Listed, tmp_path: Path) -> None:
    """transformers would draw them at random. A pooler that lacks is left out instead."""
    tensors = load_file(vit / "model.safetensors")
    for name, left in (("bare", "pooler"), ("broken", "layer.0")):
        shutil.copytree(vit, tmp_path / name)
        kept = {key: value for key, value in tensors.items() if left not in key and f"layers.{left[-1]}" not in key}
        assert len(kept) < len(tensors)
        save_file(kept, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
    bare = extractor(str(tmp_path / "bare"), device=CPU)
    again = extractor(str(tmp_path / "bare"), device=CPU)
    x = bare.prepare(real.pairs[0].image)[None]
    assert torch.equal(bare.embed(x), again.embed(x))
    with pytest.raises(UserError, match="it lacks the weights of"):
        extractor(str(tmp_path / "broken"), device=CPU)


def test_features_are_kept_by_content(vit: Path, real: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(tmp_path, device=CPU, batch=7)
    first = np.array(store.of(real, str(vit)))
    files = list(tmp_path.iterdir())
    assert len(files) == 1
    other = FeatureStore(tmp_path, device=CPU, batch=16)
    monkeypatch.setattr(other, "_compute", lambda *_: pytest.fail("computed again"))
    assert np.array_equal(other.of(Listed(real.pairs), str(vit)), first)
    monkeypatch.undo()
    files[0].unlink()
    np.testing.assert_allclose(FeatureStore(tmp_path, device=CPU, batch=16).of(real, str(vit)), first, rtol=1e-5)
    assert len(store.of(Listed(real.pairs[:5]), str(vit))) == 5


class Counted:
    """Pairs that are drawn when they are read, and how many of them were alive at once."""

    def __init__(self, count: int) -> None:
        self.names = self.groups = [str(i) for i in range(count)]
        self.alive = self.most = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> Pair:
        image = np.random.default_rng(index).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        with self._lock:
            self.alive += 1
            self.most = max(self.most, self.alive)
        weakref.finalize(image, self._gone)
        return Pair(image, np.zeros((40, 40), dtype=np.uint8), str(index), str(index))

    def _gone(self) -> None:
        with self._lock:
            self.alive -= 1


def test_few_images_are_held_at_once_however_many_there_are(vit: Path, tmp_path: Path) -> None:
    source = Counted(300)
    found = FeatureStore(tmp_path, device=CPU, batch=4).of(source, str(vit))
    assert isinstance(found, np.memmap)
    assert found.shape == (300, 16)
    assert source.most < 40


def test_a_model_of_timm_is_used_as_its_configuration_says(
    real: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            half = (0.5, 0.5, 0.5)
            self.pretrained_cfg = {"input_size": (3, 24, 24), "crop_pct": 0.75, "mean": half, "std": half}
            self.pretrained_cfg |= {"interpolation": "bilinear"}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.adaptive_avg_pool2d(x, 4).flatten(1)

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> Network:
        assert pretrained
        assert num_classes == 0
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        return Network()

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    found = extractor("timm:small", device=CPU)
    assert found.label == "small (timm)"
    assert "short side to 32 (bilinear), middle 24×24" in found.rule
    assert FeatureStore(tmp_path, device=CPU).of(real, "timm:small").shape == (30, 48)
    with pytest.raises(UserError, match="timm:large: timm cannot make it: Unknown model"):
        extractor("timm:large", device=CPU)


def test_processors_that_squash_crop_or_do_not_normalise() -> None:
    squashed = framing_of({"size": {"height": 32, "width": 32}, "do_normalize": False, "resample": 2})
    assert squashed.squash
    wide = np.zeros((20, 60, 3), dtype=np.uint8)
    assert squashed(wide).shape == (3, 32, 32)
    cut = framing_of({"size": 40, "crop_size": 24, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    assert cut.words == "short side to 40 (bicubic), middle 24×24"
    assert float(cut(wide).max()) == -1
    with pytest.raises(ValueError, match="not square"):
        framing_of({"size": {"height": 32, "width": 64}})
