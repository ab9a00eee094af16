"""What counts for a cell and what does not: settings, data, code, needs, results; and how long the rest will take."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import toy_study
from data_of_study import prepared

from laworder.errors import UserError
from laworder.paper import code, running
from laworder.paper.identity import Resolver
from laworder.paper.jobs import Data, Job, Output
from laworder.paper.planning import duration, steps, summary
from laworder.paper.running import carry_out, line
from laworder.paper.setting import Setting, parse_seeds
from laworder.paper.store import result, status
from laworder.runs.manifest import describe_device

SETTING = Setting(seeds=(0, 1))


def do(root: Path, **settings: Any) -> dict[str, str]:
    outcomes = carry_out(toy_study.plan(root, SETTING, **settings), "cpu", on="local", patience=5)
    return {key: outcome.state for key, outcome in outcomes.items()}


def states(root: Path, **settings: Any) -> dict[str, str]:
    return {step.one.job.label: step.status.state for step in toy_study.plan(root, SETTING, **settings)}


def one(root: Path, *, module: str = "toy_command", **settings: Any) -> Any:
    resolver = Resolver(root, commands={"toy": module}, device="cpu")
    return resolver.resolve(Job("toy", "toy/one", settings))


def perform(root: Path, **settings: Any) -> None:
    found = steps([one(root, **settings)], root, describe_device("cpu"))
    assert all(o.state == "done" for o in carry_out(found, "cpu", on="local", patience=5).values())


def test_a_study_is_done_once(tmp_path: Path) -> None:
    first = do(tmp_path)
    assert set(first.values()) == {"done"}
    assert len(first) == 2 + 12  # two starts that six jobs each share, three rows × two data sets × two seeds
    assert do(tmp_path) == {}
    for log in tmp_path.rglob("finished.log"):
        assert log.read_text() == "finished\n"


def test_a_changed_setting_makes_a_run_stale_and_says_which(tmp_path: Path) -> None:
    perform(tmp_path, factor=2.0)
    found = status(one(tmp_path, factor=3.0))
    assert (found.state, found.why) == ("stale", "setting factor: 2.0 then, 3.0 now")
    # Going back finds the old run again.
    assert status(one(tmp_path, factor=2.0)).state == "done"


def test_where_and_how_fast_do_not_count(tmp_path: Path) -> None:
    perform(tmp_path, factor=2.0)
    assert status(one(tmp_path, factor=2.0, pause=0.5, device="cuda:3")).state == "done"


def test_changed_data_make_a_run_stale_and_moved_data_do_not(tmp_path: Path) -> None:
    data = prepared(tmp_path / "data")
    perform(tmp_path, data=Data(f"{data}:all"))
    moved = tmp_path / "elsewhere"
    shutil.copytree(data, moved)
    assert status(one(tmp_path, data=Data(f"{moved}:all"))).state == "done"
    victim = next((moved / "masks").iterdir())
    victim.write_bytes(victim.read_bytes() + b"\0")
    found = status(one(tmp_path, data=Data(f"{moved}:all")))
    assert (found.state, found.why) == ("stale", "data of data changed")
    victim.unlink()
    assert status(one(tmp_path, data=Data(f"{moved}:all"))).state == "stale"


def test_changed_code_makes_a_run_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "own_command.py"
    text = Path(toy_study.__file__).with_name("toy_command.py").read_text()
    source.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = one(tmp_path / "study", module="own_command")
    carry_out(steps([found], tmp_path / "study", {}), "cpu", on="local", patience=5)
    assert status(found).state == "done"
    source.write_text(text.replace("config.factor *", "2 * config.factor *"))
    code.code_hashes.cache_clear()
    code._mentioned.cache_clear()
    later = status(one(tmp_path / "study", module="own_command"))
    assert (later.state, later.why) == ("stale", "code of own_command changed")


def test_code_is_what_a_command_can_reach() -> None:
    seg = code.code_hashes("laworder.segmentation.train_command")
    assert {"segmentation", "segmenters", "order", "data", "metrics", "runs"} <= set(seg)
    assert not {"law", "diffusion", "evaluation", "report", "cli", "paper"} & set(seg)
    # A table of late imports names its modules as text.
    assert "laworder.segmenters.pranet" in code.reach("laworder.segmentation.train_command")
    with pytest.raises(UserError, match="cannot be found"):
        code.reach("laworder.no_such_module")


def test_what_a_run_builds_upon_counts(tmp_path: Path) -> None:
    do(tmp_path)
    resolver = toy_study.resolver(tmp_path)
    other = Job("toy", "start/polyps", {"steps": 9})
    job = Job("toy", "toy/polyps/own/seed 0", {**toy_study.job("own", "polyps", 0).settings, "start": Output(other)})
    assert status(resolver.resolve(job)).why == "start/polyps is another one"


def test_a_lost_start_makes_what_built_upon_it_stale(tmp_path: Path) -> None:
    do(tmp_path)
    (start,) = [s.one for s in toy_study.plan(tmp_path, SETTING) if s.one.job.label == "start/polyps"]
    (start.out / "value.json").unlink()
    found = states(tmp_path)
    assert found["start/polyps"] == "missing"
    assert found["toy/polyps/own/seed 1"] == "stale"
    assert found["toy/brisc/own/seed 1"] == "done"


def test_a_failed_run_says_why_and_skips_what_needs_it(tmp_path: Path) -> None:
    outcomes = do(tmp_path, wrong=True)
    assert sorted(set(outcomes.values())) == ["failed", "skipped"]
    found = {s.one.job.label: s for s in toy_study.plan(tmp_path, SETTING, wrong=True)}
    assert line(found["start/polyps"]).startswith("failed   start/polyps (the toy was told to fail), ")
    assert found["toy/polyps/own/seed 0"].status.state == "missing"


def test_a_study_that_is_stopped_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def interrupted(order: dict[str, Any]) -> str:
        begun.append(order["label"])
        if len(begun) == 4:
            raise KeyboardInterrupt
        return running_perform(order)

    running_perform = running.perform
    monkeypatch.setattr(running, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path)
    assert capsys.readouterr().err.endswith("stopped with 3 of 14 runs done; the same command goes on from here\n")
    assert list(states(tmp_path).values()).count("done") == 3
    monkeypatch.undo()
    assert len(do(tmp_path)) == 11


def test_a_run_that_was_cut_off_is_begun(tmp_path: Path) -> None:
    perform(tmp_path)
    found = one(tmp_path)
    record = json.loads((found.folder / "job.json").read_text())
    (found.folder / "job.json").write_text(json.dumps({**record, "outcome": "running"}))
    assert status(found) == status(found).__class__("begun", "step 3 is done")


def test_a_result_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    perform(tmp_path)
    found = one(tmp_path)
    assert result(found, "value.json") == {"value": 3.0}
    (found.out / "value.json").write_text('{"value": 99}')
    with pytest.raises(UserError, match=r"value\.json was changed after toy/one wrote it"):
        result(found, "value.json")
    with pytest.raises(UserError, match="is no result of"):
        result(found, "other.json")


def test_time_is_estimated_from_runs_of_this_machine(tmp_path: Path) -> None:
    assert "unknown for all 14" in summary(toy_study.plan(tmp_path, SETTING))[1]
    do(tmp_path)
    assert summary(toy_study.plan(tmp_path, SETTING)) == ["14 runs: all done"]
    for path in tmp_path.rglob("job.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "seconds": 8.0}))
    longer = toy_study.plan(tmp_path, Setting(seeds=(0, 1, 2)))
    todo = {s.one.job.label: s.seconds for s in longer if s.status.state != "done"}
    assert todo == {f"toy/{d}/{r}/seed 2": 8.0 for d in ("polyps", "brisc") for r in ("unet", "order_01", "own")}
    assert summary(longer)[1] == "time on this machine, one after the other: about 48 s"
    elsewhere = steps([s.one for s in longer], tmp_path, {"type": "cuda", "name": "another machine"})
    assert all(s.seconds is None for s in elsewhere if s.status.state != "done")


def test_durations_and_seeds_read_as_people_write_them() -> None:
    assert [duration(s) for s in (None, 5, 600, 7200)] == ["unknown", "5 s", "10 min", "2.0 h"]
    assert parse_seeds("0-4", "demo") == (0, 1, 2, 3, 4)
    assert parse_seeds("0,2,5-6", "demo") == (0, 2, 5, 6)
    assert parse_seeds(None, "paper") == (0, 1, 2, 3, 4)
    for wrong in ("four", "3-1", "0,0", ""):
        with pytest.raises(UserError, match="seeds"):
            parse_seeds(wrong, "demo")


def test_an_unknown_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the command `synth draw` does not exist"):
        Resolver(tmp_path).resolve(Job("synth draw", "x", {}))
