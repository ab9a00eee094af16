"""One file for tensors and JSON, with a hash of every one of its bytes.

The file is plain safetensors, which any safetensors reader opens: an 8-byte length, a JSON header, the tensors' bytes.
The header's `__metadata__` carries our JSON and `sha256`, the hash of the whole file with that field's 64 digits set
to zero. So no byte is outside the hash: a change in the field itself no longer matches the rest, a change elsewhere
no longer matches the field. It is written in one pass, tensor by tensor; only the digits are filled in afterwards.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, cast

import torch
from safetensors import safe_open
from torch import Tensor

from laworder.errors import UserError

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_NO_HASH = b"0" * 64
_HASH = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_PIECE = 1 << 24
_HEADER_LIMIT = 100_000_000  # safetensors' own


class Writable(Protocol):
    """The part of an unbuffered binary file that writing needs; `write` may take fewer bytes than it is given."""

    def write(self, data: Any, /) -> int | None: ...
    def seek(self, offset: int, /) -> int: ...


class DamagedFileError(UserError):
    """The file is not what was written: truncated, altered, or never one of ours."""


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    # Widest items first, as safetensors does, so that every tensor starts aligned.
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    # ensure_ascii and json's escaping of quotes mean that the pattern _HASH occurs in the header once.
    entries: dict[str, Any] = {"__metadata__": {**metadata, "sha256": _NO_HASH.decode()}}
    offset = 0
    for name in _order(tensors):
        tensor = tensors[name]
        if tensor.dtype not in _DTYPES:
            raise UserError(f"{name} has dtype {tensor.dtype}, which checkpoints do not hold")
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    for name in _order(tensors):
        if tensors[name].numel() == 0:
            continue
        flat = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        data = memoryview(cast("Any", flat.numpy()))
        yield from (data[i : i + _PIECE] for i in range(0, len(data), _PIECE))


def _write_all(file: Writable, data: memoryview) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def write_tensors(file: Writable, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Write everything to an unbuffered file and return the hash. Tensors are brought to the CPU one at a time."""
    header = _header(tensors, metadata)
    digest = hashlib.sha256(header)
    _write_all(file, memoryview(header))
    for piece in _pieces(tensors):
        digest.update(piece)
        _write_all(file, piece)
    where = _HASH.search(header)
    assert where is not None, "the header always holds the field"
    file.seek(where.start(1))
    _write_all(file, memoryview(digest.hexdigest().encode()))
    return digest.hexdigest()


def _header_and_hash(file: IO[bytes], size: int) -> tuple[bytes, str]:
    """The header with the hash's digits set to zero, and these digits."""
    length = file.read(8)
    count = int.from_bytes(length, "little")
    if len(length) < 8 or count > min(size - 8, _HEADER_LIMIT):
        raise DamagedFileError("it is truncated or not a checkpoint")
    header = length + file.read(count)
    found = _HASH.findall(header)
    if len(found) != 1:
        raise DamagedFileError("its hash is missing or damaged")
    return _HASH.sub(b'"sha256":"' + _NO_HASH + b'"', header), found[0].decode()


def verify(path: Path) -> str:
    """The hash of a file that is whole; DamagedFileError for any other."""
    try:
        with path.open("rb") as file:
            header, expected = _header_and_hash(file, path.stat().st_size)
            digest = hashlib.sha256(header)
            while piece := file.read(_PIECE):
                digest.update(piece)
    except DamagedFileError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != expected:
        raise DamagedFileError(f"{path} is damaged: its contents do not match its hash")
    return expected


def read_metadata(path: Path) -> dict[str, str]:
    """The JSON strings of a file that `verify` has passed."""
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def read_tensors(path: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Named tensors, on the CPU, of a file that `verify` has passed."""
    with safe_open(path, framework="pt") as file:
        # Cloned: safetensors' own are views of the mapped file, which is not aligned and does not outlive it.
        return {name: file.get_tensor(name).clone() for name in names}
