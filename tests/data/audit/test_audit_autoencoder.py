"""Autoencoders are read from both kinds of folder, and other folders are refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from laworder.data.audit.autoencoder import Taef2, open_autoencoder
from laworder.data.audit.roundtrip import fading
from laworder.data.sources.folder import FolderSource
from laworder.errors import UserError


def test_diffusers_folder(tmp_path: Path) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    tiny = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "latent_channels": 4}
    blocks = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    network = diffusers.AutoencoderTiny(**tiny, **blocks).eval()
    network.save_pretrained(tmp_path)
    images = torch.rand(2, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        expected = network.decode(network.encode(images).latents).sample
    torch.testing.assert_close(open_autoencoder(tmp_path)(images), expected)


def test_taef2_folder_round_trips_its_own_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Taef2()
    torch.save(network.encoder.state_dict(), tmp_path / "taef2_encoder.pth")
    torch.save(network.decoder.state_dict(), tmp_path / "taef2_decoder.pth")
    images = torch.rand(1, 3, 16, 16) * 2 - 1
    assert network.encoder(images).shape == (1, 32, 2, 2)
    with torch.no_grad():
        torch.testing.assert_close(open_autoencoder(tmp_path)(images), network(images))
    (tmp_path / "taef2_decoder.pth").write_bytes((tmp_path / "taef2_encoder.pth").read_bytes())
    with pytest.raises(UserError, match="not the weights of TAEF2"):
        open_autoencoder(tmp_path)


@pytest.mark.parametrize(("content", "words"), [("{", "not a config"), (json.dumps({"_class_name": "X"}), "is 'X'")])
def test_other_configs_are_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=words):
        open_autoencoder(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no autoencoder"):
        open_autoencoder(tmp_path)


@pytest.mark.real_data
def test_the_published_weights_reconstruct_real_images(shared_data: Path) -> None:
    weights = shared_data.parent / "weights" / "taef2"
    if not weights.is_dir():
        pytest.skip("the weights of TAEF2 are not beside the data")
    polyps = shared_data / "polyps" / "TrainDataset"
    source = FolderSource(polyps / "image", polyps / "masks", check=False, progress=False)
    seen = fading(source, [800, 1440], open_autoencoder(weights), size=128)
    assert seen.psnr > 25
    assert 0.8 < seen.bins[-1].contrast < 1.2
