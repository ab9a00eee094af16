"""Our FID and KID are torch-fidelity's and pytorch-fid's, on real polyp images and on Inception's real weights.

The two programs run in an environment of their own (tools/reference_env.py), where they load the same weights, which
are handed to them in their own file format.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tiny import CPU, ROOT, Listed, inception_file, phantoms, reference_python
from laworder.data.pairs import Pair
from laworder.errors import UserError
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.fidelity import load_statistics, save_statistics
from laworder.evaluation.inception import Inception
from laworder.evaluation.weights import DOWNLOADED, _layers, load_inception, weights_digest
from laworder.metrics.frechet import frechet, frechet_of, kid, moments

POLYPS = ROOT.parent / "shared" / "data" / "polyps" / "TrainDataset" / "image"
COUNT = 24

REFERENCE = """
import json, sys
from pathlib import Path
import numpy as np, torch
from PIL import Image
from torch.nn import functional as F
import pytorch_fid.inception as theirs
from pytorch_fid.fid_score import calculate_frechet_distance
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric

folder = Path(sys.argv[1])
torch.set_num_threads(1)
sets = [sorted((folder / name).glob("*.png")) for name in ("a", "b")]
state = torch.load(folder / "weights.pth", weights_only=True)
theirs.load_state_dict_from_url = lambda *_, **__: state
pytorch_fid = theirs.InceptionV3([3]).eval()
fidelity = FeatureExtractorInceptionV3("x", ["2048"], feature_extractor_weights_path=str(folder / "weights.pth"))
found = {"pytorch-fid": [], "torch-fidelity": []}
with torch.inference_mode():
    for files in sets:
        x = torch.stack([torch.from_numpy(np.array(Image.open(f).convert("RGB"))).permute(2, 0, 1) for f in files])
        found["torch-fidelity"].append(fidelity(x)[0])
        found["pytorch-fid"].append(pytorch_fid(x.float() / 255)[0][..., 0, 0])
for name, (a, b) in found.items():
    np.savez(folder / f"{name}.npz", a=a.numpy(), b=b.numpy())
said = {}
for name, (a, b) in found.items():
    stats = [fid_features_to_statistics(side.double()) for side in (a, b)]
    said[name] = {
        "fid": fid_statistics_to_metric(*stats, verbose=False)["frechet_inception_distance"],
        "kid": kid_features_to_metric(a, b, kid_subsets=3, kid_subset_size=len(a), verbose=False)[
            "kernel_inception_distance_mean"
        ],
    }
own = [np.load(folder / f"{name}-narrow.npz") for name in ("a", "b")]
said["narrow"] = float(calculate_frechet_distance(own[0]["mu"], own[0]["sigma"], own[1]["mu"], own[1]["sigma"]))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def inception() -> Path:
    return inception_file()


def as_downloaded(archive: Path) -> dict[str, torch.Tensor]:
    """The weights in the form of the file that pytorch-fid downloads; the classifier, which nobody uses, is zero."""
    with torch.device("meta"):
        network = Inception()
    state: dict[str, torch.Tensor] = {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
    for name, (weight, beta, mean, variance) in _layers(archive, network):
        state[f"{name}.conv.weight"], state[f"{name}.bn.bias"] = weight, beta
        state[f"{name}.bn.weight"] = torch.ones_like(beta)
        state[f"{name}.bn.running_mean"], state[f"{name}.bn.running_var"] = mean, variance
    return state


@pytest.mark.slow
def test_every_file_gives_the_same_network(inception: Path, tmp_path: Path) -> None:
    torch.save(as_downloaded(inception), tmp_path / "weights.pth")
    assert weights_digest(load_inception(tmp_path / "weights.pth")) == weights_digest(load_inception(inception))
    (tmp_path / "bad.tar.gz").write_bytes(b"nothing")
    torch.save({"a": torch.zeros(1)}, tmp_path / "bad.pth")
    (tmp_path / "worse.pth").write_bytes(b"nothing")
    for name in ("bad.tar.gz", "bad.pth", "worse.pth"):
        with pytest.raises(UserError, match=rf"{name}: not the weights of Inception-2015"):
            load_inception(tmp_path / name)


@pytest.mark.slow
def test_features_do_not_depend_on_the_batch(inception: Path, tmp_path: Path) -> None:
    pairs = Listed(phantoms(7, seed=0))
    found = [
        np.array(FeatureStore(tmp_path / str(n), device=CPU, batch=n, inception=inception).of(pairs)) for n in (1, 3, 7)
    ]
    assert found[0].shape == (7, 2048)
    scale = np.abs(found[0]).max()
    assert max(np.abs(other - found[0]).max() for other in found[1:]) < 1e-5 * scale
    a, b = found[0], found[2][::-1] * 1.01
    assert frechet_of(found[1], b) == pytest.approx(frechet_of(a, b), rel=1e-5)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fid_and_kid_are_those_of_the_programs_that_people_know(inception: Path, tmp_path: Path) -> None:
    if not POLYPS.is_dir():
        pytest.skip("the polyp images are not beside this checkout")
    files = sorted(POLYPS.iterdir())
    sides = {"a": files[:COUNT], "b": files[-COUNT:]}
    sources: dict[str, Listed] = {}
    for name, chosen in sides.items():
        (tmp_path / name).mkdir()
        pixels = [np.asarray(Image.open(file).convert("RGB").resize((256, 256))) for file in chosen]
        for k, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / name / f"{k:03}.png")
        blank = np.zeros((256, 256), dtype=np.uint8)
        sources[name] = Listed([Pair(image, blank, str(k), str(k)) for k, image in enumerate(pixels)])
    torch.save(as_downloaded(inception), tmp_path / "weights.pth")
    ours = {
        rule: [
            np.array(FeatureStore(tmp_path / "c", device=CPU, inception=inception, rule=rule).of(sources[name]))
            for name in sides
        ]
        for rule in ("pytorch-fid", "torch-fidelity")
    }
    # pytorch-fid's matrix root is off where Σ₁Σ₂ has no full rank: it is compared on as many features as it can do.
    for name, features in zip(sides, ours["pytorch-fid"], strict=True):
        save_statistics(tmp_path / f"{name}-narrow.npz", moments(features[:, :16]))
    (tmp_path / "reference.py").write_text(REFERENCE)
    done = subprocess.run(
        [reference_python(), tmp_path / "reference.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    for rule, (a, b) in ours.items():
        with np.load(tmp_path / f"{rule}.npz") as theirs:
            for mine, name in ((a, "a"), (b, "b")):
                assert np.abs(mine - theirs[name]).max() < 1e-4 * np.abs(theirs[name]).max()
            same = theirs["a"], theirs["b"]
        assert frechet_of(*same) == pytest.approx(said[rule]["fid"], rel=1e-4)
        assert kid(*same) == pytest.approx(said[rule]["kid"], rel=1e-4)
        assert frechet_of(a, b) == pytest.approx(said[rule]["fid"], rel=1e-4)
    narrow = frechet_of(*(features[:, :16] for features in ours["pytorch-fid"]))
    assert narrow == pytest.approx(said["narrow"], rel=1e-4)
    # Our statistics through pytorch-fid's own command, and its own through ours.
    printed = pytorch_fid(tmp_path, tmp_path / "a-narrow.npz", tmp_path / "b-narrow.npz")
    assert float(re.findall(r"FID:\s+(\S+)", printed)[0]) == pytest.approx(narrow, rel=1e-4)
    pytorch_fid(tmp_path, "--save-stats", tmp_path / "a", tmp_path / "theirs.npz")
    a, b = ours["pytorch-fid"]
    assert frechet(load_statistics(tmp_path / "theirs.npz"), moments(b)) == pytest.approx(frechet_of(a, b), rel=1e-4)


def pytorch_fid(place: Path, *words: object) -> str:
    """What its command prints; the weights lie where it looks for those that it downloaded."""
    weights = place / "torch" / "hub" / "checkpoints" / DOWNLOADED[0]
    weights.parent.mkdir(parents=True, exist_ok=True)
    if not weights.exists():
        weights.symlink_to(place / "weights.pth")
    command = [reference_python(), "-m", "pytorch_fid", "--device", "cpu", "--num-workers", "0", "--batch-size", "8"]
    env = {**os.environ, "TORCH_HOME": str(place / "torch")}
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
