"""`laworder paper list | plan | run | table` on drawn data, with trainings as short as can be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from data_of_study import prepared

from laworder.cli import main
from laworder.cli import table as cli_table
from laworder.paper import drawing, jobs, segmentation, synthesis
from laworder.paper.segmentation import COMPARISON, training
from laworder.paper.setting import Setting
from laworder.paper.spec import Absent

SHORT = {"epochs": 1, "optimiser.warmup": 0, "phantom.count": 10, "size": 32, "validate_every": 1}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["paper", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_a_table_from_the_plan_to_its_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segmentation, "DEMO", {**segmentation.DEMO, **SHORT})
    told = ("--out", str(tmp_path), "--device", "cpu", "--seeds", "0-1")
    code, out, _ = run(capsys, "plan", "stages", *told)
    assert code == 0
    assert "missing  seg train/drawn/order_0123/seed 1 (never run), unknown" in out
    assert "10 runs: 10 missing" in out

    # Share 2 of 3, then everything: what is there is not made again.
    code, _, err = run(capsys, "run", "stages", *told, "--shard", "2/3")
    assert code == 0, err
    some = err.count("] done: ")
    assert 0 < some < 10
    code, out, err = run(capsys, "run", "stages", *told)
    assert err.count("] done: ") == 10 - some
    assert "0 not" in out
    code, out, _ = run(capsys, "plan", "stages", *told)
    assert out.splitlines()[-1] == "10 runs: all done"

    # The attention table has two of these models, evaluated besides.
    _, out, _ = run(capsys, "plan", "attention", *told)
    assert out.count("done     seg train/drawn/") == 4
    assert out.count("missing  seg evaluate/") == 8
    assert "brisc" not in out  # one drawn data set stands for all

    code, out, _ = run(capsys, "table", "stages", *told)
    assert code == 0
    assert "| Deep skips {0,1} | 42,265 | 42,000 | +265 |" in out
    assert out.count("(n=2) |") == 5
    assert "Missing" not in out
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {f"stages-demo.{s}" for s in ("md", "tex", "csv")}
    code, out, _ = run(capsys, "table", "stages", *told, "--explain", "order_01/polyps-dice")
    manifests = [Path(line.strip()) for line in out.splitlines() if line.startswith("  ")]
    assert [path.name for path in manifests] == ["job.json", "manifest.json"] * 2
    assert json.loads(manifests[1].read_text())["config"]["model"] == "order_01"
    code, _, err = run(capsys, "table", "stages", *told, "--explain", "order_01/polyp-dice")
    assert (code, "did you mean 'order_01/polyps-dice'?" in err) == (2, True)

    # Another recipe is another run: the old ones do not count, and the plan says why.
    monkeypatch.setattr(segmentation, "DEMO", {**segmentation.DEMO, "batch": 4})
    _, out, _ = run(capsys, "plan", "stages", *told)
    assert "stale    seg train/drawn/order_01/seed 0 (setting batch: 8 then, 4 now), " in out


@pytest.mark.slow
def test_images_are_drawn_mixed_and_learnt_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {key: value for key, value in SHORT.items() if not key.startswith("phantom.")}
    monkeypatch.setattr(drawing, "DEMO_SEGMENTER", {**drawing.DEMO_SEGMENTER, **short})
    monkeypatch.setattr(drawing, "DEMO_DATA", {**drawing.DEMO_DATA, "phantom.count": 24, "size": 32})
    shorter = {"size": 32, "batch": 4, "watch.images": 2, "watch.validation": 2, "watch.steps": 2}
    monkeypatch.setattr(drawing, "DEMO", {**drawing.DEMO, **shorter})
    monkeypatch.setattr(drawing, "STEPS", {"demo": {"prior": 3, "control": 3}})
    monkeypatch.setattr(drawing, "DRAWING_STEPS", {"demo": 2})
    monkeypatch.setattr(synthesis, "DOSES", {250: 4, 500: 8, 1000: 12, 1450: None})
    told = ("--out", str(tmp_path), "--device", "cpu", "--seeds", "0")
    for name in ("dose", "audit"):
        code, _, err = run(capsys, "run", name, *told)
        assert code == 0, err
    _, out, _ = run(capsys, "table", "dose", *told)
    assert "Missing" not in out
    assert out.count("(n=1) |") == 5

    # Larger doses hold the smaller ones; the validation part is real, and the same for all.
    mixed = {path.parts[-5]: json.loads(path.read_text())["splits"][0] for path in tmp_path.rglob("mix/**/split.json")}
    drawn = {kind: {n for n in split["train"] if n.startswith("synthetic-")} for kind, split in mixed.items()}
    assert {kind: len(names) for kind, names in drawn.items()} == {
        "real": 0,
        "law-4": 4,
        "law-8": 8,
        "law-12": 12,
        "law-all": len(mixed["real"]["train"]) + len(mixed["real"]["val"]),
    }
    assert drawn["law-4"] < drawn["law-8"] < drawn["law-12"] < drawn["law-all"]
    assert len({tuple(split["val"]) for split in mixed.values()}) == 1
    assert not any(n.startswith("synthetic-") for n in mixed["real"]["val"])

    code, out, _ = run(capsys, "figure", *told)
    assert code == 0
    assert "samples: " in out
    assert "doses-demo.html" in out
    assert "deltas-demo.html" in out
    assert "audit-demo.html" in out
    assert run(capsys, "report", *told)[0] == 0
    _, out, _ = run(capsys, "plan", "dose", *told)
    assert out.splitlines()[-1] == "19 runs: all done"


@pytest.mark.slow
def test_runtime_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laworder.paper.runtime.DEMO", {"size": 32, "batch": 2, "repeats": 3})
    told = ("runtime", "--out", str(tmp_path), "--device", "cpu")
    assert run(capsys, "run", *told)[0] == 0
    _, out, _ = run(capsys, "table", *told)
    assert "| ORDER{0,1} | 42,265 | 42,265 | +0 | 0.112 | 0.112 |" in out
    measured = json.loads(next(tmp_path.rglob("runtime.json")).read_text())
    assert all(row["ms_per_image"] > 0 and row["peak_mb"] > 0 for row in measured["models"].values())


def test_list_names_tables_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "stages             table 10  Which skips get bidirectional attention (10 published numbers)" in out
    for figure, label in (
        ("cases", "fig:segmentation_qual"),
        ("samples", "fig:kits_brisc_qual"),
        ("samples", "fig:diffusion_qual"),
        ("deltas", "fig:attention_vis"),
    ):
        assert re.search(rf"^{figure} +figure .*\b{label}\b", out, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "stage"), "unknown table or figure 'stage'; did you mean 'stages'?"),
        (("run", "stages", "--shard", "3"), "shard: write K/N with K from 1 to N, such as 1/8, not '3'"),
        (("run", "runtime", "--on", "somewhere"), "on: 'somewhere' is no place; use local, ray"),
        (
            ("plan", "stages", "--scale", "small", "--data.polyps", "/nowhere"),
            "data.polyps: /nowhere holds no prepared",
        ),
        (("plan", "stages", "--seeds", "x"), "seeds: expected such as 0-4 or 0,2,5, not 'x'"),
    ],
)
def test_wrong_words(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(capsys, *words, "--out", str(tmp_path / "study"))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_real_data_are_used_by_pool_and_their_absence_is_said(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data")
    index = json.loads((data / "dataset.json").read_text())
    (data / "dataset.json").write_text(json.dumps({**index, "pools": {"order": index["pools"]["all"]}}))
    here = Setting(scale="small", sets={"polyps": str(data)})
    train = training(here, "order_01", "polyps", 3)
    assert not isinstance(train, Absent)
    assert train.label == "seg train/polyps/paper/order_01/seed 3"
    assert train.settings["epochs"] == 100
    assert train.settings["data"].argument == f"{data}:order"
    judged = segmentation.tested(here, "order_01", "polyps", 3)
    assert not isinstance(judged, Absent)
    assert judged.settings["part"] == "held-out"  # the paper's test images are not in it
    assert any("the paper's test images" in line for line in COMPARISON.notes(here))
    absent = training(here, "order_01", "brisc", 3)
    assert isinstance(absent, Absent)
    assert absent.why == "no BRISC data: give --data.brisc FOLDER"
    assert training(here, "unet", "polyps", 0).gpus == 1.0  # type: ignore[union-attr]
    assert training(here, "order_01", "polyps", 0).gpus == 0.25  # type: ignore[union-attr]


def test_jobs_run_the_commands_of_the_command_line() -> None:
    known = {command.name: command.module for command in cli_table.COMMANDS}
    both = set(known) & set(jobs.COMMANDS)
    assert {"seg train", "seg evaluate", "synth train", "synth sample", "evaluate", "data audit"} <= both
    assert {name: jobs.COMMANDS[name] for name in both} == {name: known[name] for name in both}
