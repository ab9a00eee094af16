"""Several processes train what one does: whole on each of them, or in shards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from training import SMALL, settings, trained_prior

from launchers import accelerate, torchrun
from laworder.cli import main
from laworder.diffusion.backbone import Backbone
from laworder.diffusion.memory import too_large
from laworder.diffusion.sharding import check_sharding
from laworder.diffusion.train import train
from laworder.errors import UserError
from laworder.runs import Checkpoints, read_manifest, read_metrics, sha256_file
from laworder.runs.distributed import Place

CHILD = Path(__file__).with_name("sharding_child.py")
OBJECTIVES = {
    "law": {},
    "distillation": {"accumulate": 2, "save_every": 1, "network__gradient_checkpointing": True},
}
MORE = {"optimiser__lr": 1e-3, "law__lr": 1e-3, "optimiser__schedule": "cosine", "optimiser__warmup": 2}


class Alone(NamedTuple):
    """A run in one process, and its settings."""

    folder: Path
    told: dict[str, Any]


def launched(launcher: list[str], words: list[str]) -> None:
    done = subprocess.run([*launcher, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def sharded(out: Path, alone: Alone, **more: Any) -> None:
    told = {**alone.told, "out": out, "network__shard": True, **more}
    launched(torchrun(), [str(CHILD), json.dumps(told, default=str)])


def assert_same_training(one: Path, two: Path, steps: int = 4) -> None:
    """As many updates, the same rates, losses to 1e-5, and looks that hardly differ."""
    ours, theirs = (read_metrics(folder / "metrics.jsonl") for folder in (one, two))
    assert len(ours) == len(theirs) == steps
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.keys() == yours.keys()
        assert yours["loss"] == pytest.approx(mine["loss"], rel=1e-5)
        assert yours["grad_norm"] == pytest.approx(mine["grad_norm"], rel=1e-3)
        assert [yours[name] for name in yours if name.startswith("lr")] == [
            mine[name] for name in mine if name.startswith("lr")
        ]
        if "val_realism" in mine:
            assert yours["val_realism"] == pytest.approx(mine["val_realism"], rel=1e-3)
    assert (two / "report.html").is_file()


def processes_of(run: Path) -> int:
    """How many there were, as the last checkpoint says it."""
    found = Checkpoints(run / "checkpoints").latest()
    assert found is not None
    return found.state["loop"]["world"]


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_prior(tmp_path_factory.mktemp("prior"), steps=1)


@pytest.fixture(scope="module", params=list(OBJECTIVES))
def alone(request: pytest.FixtureRequest, prior: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """A run in one process."""
    told = {"prior": prior, "objective": request.param, **MORE, **OBJECTIVES[request.param]}
    folder = tmp_path_factory.mktemp("alone") / request.param
    train(settings(out=folder, **told))
    return Alone(folder, told)


@pytest.fixture(scope="module")
def shards(alone: Alone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in two processes, each with half of everything."""
    folder = tmp_path_factory.mktemp("shards") / "run"
    sharded(folder, alone)
    return folder


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path: Path, alone: Alone) -> None:
    values = {**SMALL, **{key.replace("__", "."): value for key, value in alone.told.items()}}
    # --set, since torchrun takes a --log of its own
    flags = [f"--set={key}={value}" for key, value in values.items() if key != "data"]
    launched(torchrun(), ["-m", "laworder", "synth", "train", "phantom", *flags, f"--set=out={tmp_path / 'two'}"])
    assert_same_training(alone.folder, tmp_path / "two")
    assert processes_of(tmp_path / "two") == 2
    assert (tmp_path / "two" / "model" / "laworder.json").is_file()


@pytest.mark.slow
def test_accelerate_launch_gets_the_losses_of_one_process(tmp_path: Path) -> None:
    """The guide's command: its preset's schedule counts updates, however many processes share one."""
    values = {k: v for k, v in SMALL.items() if k not in ("data", "backbone")}
    words = ["synth", "train", "phantom", "--preset", "tiny", "--optimiser.warmup", "2"]
    words += [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    launched(accelerate(), ["-m", "laworder", *words, "--out", str(tmp_path / "two")])
    assert_same_training(tmp_path / "one", tmp_path / "two")
    assert processes_of(tmp_path / "two") == 2
    rates = [line["lr_0"] for line in read_metrics(tmp_path / "two" / "metrics.jsonl")]
    assert rates[0] < rates[1] >= rates[2] > rates[3], "warm-up and descent of the whole run, in its four updates"


def assert_same_state(ours: Any, theirs: Any) -> None:
    """The same names, shapes and numbers, whoever wrote it."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            if key != "world":
                assert_same_state(value, theirs[key])
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same_state(one, other)
    elif isinstance(ours, torch.Tensor):
        torch.testing.assert_close(theirs, ours, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_shards_compute_what_one_process_does(alone: Alone, shards: Path) -> None:
    """And what they leave behind is what one process would have left: checkpoints and a model that load anywhere."""
    assert_same_training(alone.folder, shards)
    assert processes_of(shards) == 2
    ours, theirs = (Checkpoints(folder / "checkpoints").best().state for folder in (alone.folder, shards))
    assert_same_state(ours, theirs)
    model = Backbone.load(shards)
    for name, weight in Backbone.load(alone.folder).named_parameters():
        torch.testing.assert_close(model.get_parameter(name), weight, rtol=1e-3, atol=1e-4)
    for part in ("unet", "controlnet"):
        card = (shards / "model" / part / "config.json").read_text(encoding="utf-8")
        assert not json.loads(card)["_class_name"].startswith("FSDP"), "diffusers' own class, which anybody can load"


@pytest.mark.slow
def test_a_process_holds_about_half_of_everything(shards: Path) -> None:
    first, second = (json.loads((shards.parent / f"run-bytes-{rank}.json").read_text()) for rank in (0, 1))
    assert first.keys() == {"parameters", "gradients", "averages", "optimiser"}
    for name, here in first.items():
        assert here > 100_000, name
        assert 0.45 < here / (here + second[name]) < 0.55, name


@pytest.mark.slow
@pytest.mark.parametrize("alone", ["distillation"], indirect=True)
def test_cut_after_an_update_shards_go_on_to_the_same_bits(tmp_path: Path, alone: Alone, shards: Path) -> None:
    sharded(tmp_path / "cut", alone, cut=3)
    assert len(read_manifest(tmp_path / "cut").resumptions) == 1
    for name in ("metrics.jsonl", "checkpoints/step-00000004.safetensors", "training.json"):
        assert sha256_file(tmp_path / "cut" / name) == sha256_file(shards / name)


@pytest.mark.slow
@pytest.mark.parametrize("alone", ["law"], indirect=True)
def test_a_run_begun_in_shards_may_go_on_without(tmp_path: Path, alone: Alone) -> None:
    sharded(tmp_path / "cut", alone, cut=3, save_every=1, later={"network__shard": False})
    assert_same_training(alone.folder, tmp_path / "cut")
    assert read_manifest(tmp_path / "cut").resumptions[0]["changed"] == {"network.shard": [True, False]}


@pytest.mark.parametrize(
    ("more", "world", "message"),
    [
        ({}, 1, "network.shard: there is one process, and nothing to share out"),
        ({"network__lora": 4}, 2, "network.lora: not together with --network.shard"),
        ({"optimiser__name": "adamw8bit"}, 2, "optimiser.name: not together with --network.shard: .* use adamw"),
        ({"network__compile": True}, 2, "network.compile: not together with --network.shard"),
    ],
)
def test_what_shards_cannot_be_combined_with_is_said(more: dict[str, Any], world: int, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_sharding(settings(network__shard=True, **more), Place(0, world))
    assert "\n" not in str(caught.value)
    check_sharding(settings(**more), Place(0, world))


def test_too_little_memory_is_said_without_trying_alone() -> None:
    """A trial in one process would wait for the others for ever."""
    task: Any = SimpleNamespace(sharded=True, place=Place(0, 2), device=torch.device("cpu"))
    said = str(too_large(task, settings(network__shard=True, batch=8)))
    assert said.startswith(
        "batch: 4 images at 32² at once do not fit into the memory of cpu: go on with --network.grad"
    )
    assert "--accumulate above 1" in said
    said = str(too_large(task, settings(network__shard=True, batch=8, network__gradient_checkpointing=True)))
    assert "cpu: in a new --out, use --accumulate above 1" in said


def test_one_process_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"network\.shard: there is one process"):
        train(settings(out=tmp_path / "run", network__shard=True))
    assert not (tmp_path / "run").exists()
