"""Checkpoints: round trip to the bit, every byte guarded, the old one kept until the new one is whole."""

from __future__ import annotations

import errno
import math
import os
import random
import resource
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from laworder.errors import UserError
from laworder.runs import CheckpointError, Checkpoints, load_checkpoint


def state(seed: int = 0) -> dict[str, Any]:
    """A module, an optimiser and every kind of value that a state may hold."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net(torch.randn(2, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    odd = {
        "tuple": (1, (2.5, "x"), []),
        "numbers": [math.nan, math.inf, -math.inf, -0.0, 0.1, 2**70, True, None, np.float64(0.3), np.int64(4)],
        1: "integer key",
        "$float": "a key like ours",
        "nested": OrderedDict(a=torch.arange(3), b={}),
        "nested.a": torch.zeros(1),
    }
    return {"modules": {"net": net.state_dict()}, "optimizers": {"adam": optimizer.state_dict()}, "odd": odd}


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert (
            a.numpy(force=True).tobytes() == b.numpy(force=True).tobytes() if a.dtype != torch.bfloat16 else a.equal(b)
        )
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, type(a))
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert repr(a) == repr(b) or a == b


def test_round_trip_of_everything_a_state_may_hold(tmp_path: Path) -> None:
    saved = state()
    path = Checkpoints(tmp_path).save(12, saved)
    found = load_checkpoint(path)
    assert found.step == 12
    assert found.path == path
    assert_same(saved, found.state)


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8),
        *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    ],
)
def test_every_dtype_and_odd_shapes(dtype: torch.dtype, tmp_path: Path) -> None:
    base = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    tensors = {"a": base, "scalar": base[0, 1].clone(), "empty": base[:0], "view": base.T, "byte": torch.ones(3).byte()}
    found = load_checkpoint(Checkpoints(tmp_path).save(1, {"t": tensors})).state["t"]
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(as_bytes(found[name]), as_bytes(tensor))


def test_any_safetensors_reader_can_open_it(tmp_path: Path) -> None:
    saved = state()
    tensors = load_file(Checkpoints(tmp_path).save(1, saved))
    assert torch.equal(tensors["modules.net.0.weight"], saved["modules"]["net"]["0.weight"])


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = (Checkpoints(tmp_path / name).save(3, state()).read_bytes() for name in "ab")
    assert a == b


def test_only_the_asked_for_part_is_read(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(1, state())
    assert set(load_checkpoint(path, only=("modules",)).state) == {"modules"}


def test_loaded_tensors_may_be_written_to_and_outlive_the_file(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(1, {"a": torch.ones(3)})
    tensor = load_checkpoint(path).state["a"]
    path.unlink()
    tensor += 1
    assert tensor.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("value", "says"), [(print, "state.x.1 is a builtin"), (torch.ones(1).to(torch.complex128), "dtype")]
)
def test_what_it_cannot_hold_is_named(value: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        Checkpoints(tmp_path).save(1, {"state": {"x": [0, value]}})
    assert not list(tmp_path.glob("*"))


def test_the_newest_stay_and_best_stays(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        checkpoints.save(step, {"n": step}, best=step == 2)
    assert checkpoints.steps() == [3, 4]
    assert checkpoints.best().step == 2
    assert checkpoints.latest().step == 4  # type: ignore[union-attr]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.safetensors",
        "step-00000003.safetensors",
        "step-00000004.safetensors",
    ]


def test_best_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"n": 1}, best=True)
    assert checkpoints.best().state == {"n": 1}


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None
    with pytest.raises(CheckpointError, match=r"best\.safetensors does not exist"):
        Checkpoints(tmp_path).best()
    with pytest.raises(UserError, match="keep"):
        Checkpoints(tmp_path, keep=0)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Checkpoints:
    """Two good checkpoints, of steps 10 and 20."""
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        checkpoints.save(step, {**state(step), "n": step})
    return checkpoints


def offsets(size: int, kind: str) -> list[int]:
    """50 places, among them the ends of the file and of its header's parts."""
    drawn = random.Random(kind).sample(range(size), 43)
    return [0, 1, 7, 8, 9, size // 2, size - 1, *drawn]


def assert_falls_back(checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with pytest.raises(CheckpointError, match=r"step-00000020\.safetensors"):
        load_checkpoint(checkpoints.path(20))
    found = checkpoints.latest()
    assert found is not None
    assert (found.step, found.state["n"]) == (10, 10)
    assert "step-00000020.safetensors" in caplog.text


def test_50_truncations_are_rejected_by_name_and_the_previous_one_is_used(
    pair: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    whole = pair.path(20).read_bytes()
    places = offsets(len(whole), "truncate")
    assert len(places) == 50
    for size in places:
        pair.path(20).write_bytes(whole[:size])
        assert_falls_back(pair, caplog)


def test_50_flipped_bytes_are_rejected_by_name_and_the_previous_one_is_used(
    pair: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    whole = pair.path(20).read_bytes()
    places = offsets(len(whole), "flip")
    assert len(places) == 50
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= random.Random(place).randrange(1, 256)
        pair.path(20).write_bytes(damaged)
        assert_falls_back(pair, caplog)


def test_every_single_bit_of_the_header_and_of_the_hash_counts(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(1, {"a": torch.ones(1)})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError):
                load_checkpoint(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
    path.write_bytes(whole)
    assert load_checkpoint(path).step == 1


def test_all_damaged_is_an_error_that_names_them(pair: Checkpoints) -> None:
    for step in (10, 20):
        pair.path(step).write_bytes(b"\x93NUMPY")
    with pytest.raises(CheckpointError, match=r"step-00000020.*step-00000010.*remove that folder"):
        pair.latest()


def test_rejected_ones_are_set_aside_and_no_longer_counted(pair: Checkpoints) -> None:
    pair.set_aside(after=10)
    assert pair.steps() == [10]
    assert (pair.folder / "step-00000020.rejected").exists()
    pair.save(15, state())
    assert pair.steps() == [10, 15]


def test_a_folder_in_the_place_of_a_checkpoint(pair: Checkpoints) -> None:
    pair.path(20).unlink()
    pair.path(20).mkdir()
    assert pair.latest().step == 10  # type: ignore[union-attr]


# --- full disks -----------------------------------------------------------------------------------------------------


class FullAfter(Checkpoints):
    """The disk is full after so many bytes."""

    room = 0

    def open_file(self, path: Path) -> Any:
        file, outer = super().open_file(path), self

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def write(self, data: Any) -> int:
                if outer.room == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written = file.write(bytes(data[: outer.room]))
                outer.room -= written
                return written

        return Full()


def assert_intact(checkpoints: Checkpoints, message: str) -> None:
    assert "checkpoint of step 30 could not be written" in message
    assert "step-00000020.safetensors" in message
    assert "run the same command again" in message
    assert checkpoints.steps() == [10, 20]
    assert checkpoints.latest().state["n"] == 20  # type: ignore[union-attr]
    assert not list(checkpoints.folder.glob(".*")), "nothing half-written stays on a full disk"


@pytest.mark.parametrize("room", [0, 5, 500, 3000])
def test_disk_full_at_any_point_of_a_save(room: int, pair: Checkpoints) -> None:
    full = FullAfter(pair.folder)
    full.room = room
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        full.save(30, {**state(), "n": 30}, best=True)
    assert_intact(pair, str(caught.value))
    assert not pair.best_path.exists()


def test_the_kernel_refuses_to_write_more(pair: Checkpoints) -> None:
    """A real limit: no file of this process may grow beyond 2000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        with pytest.raises(CheckpointError, match="File too large") as caught:
            pair.save(30, {**state(), "n": 30})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_intact(pair, str(caught.value))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_device_that_is_really_full(pair: Checkpoints) -> None:
    class DevFull(Checkpoints):
        def open_file(self, path: Path) -> Any:  # noqa: ARG002
            return Path("/dev/full").open("wb", buffering=0)

    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        DevFull(pair.folder).save(30, {"n": 30})
    assert_intact(pair, str(caught.value))


def test_leftovers_of_a_killed_save_are_swept(pair: Checkpoints) -> None:
    (pair.folder / ".step-00000030.safetensors.1-ab.partial").write_bytes(b"half")
    pair.sweep()
    assert not list(pair.folder.glob(".*"))
    assert pair.steps() == [10, 20]
