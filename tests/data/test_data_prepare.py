"""Prepared data: one layout, the same bytes every time, and nothing lost or made up when it is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data_pictures import contents, pictures
from PIL import Image

from laworder.cli import main
from laworder.data.opening import Phantom, open_source
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.anyfolder import FolderRule, any_folder
from laworder.data.sources.phantom import PhantomSource
from laworder.data.sources.raw import Raw, from_source
from laworder.errors import UserError
from laworder.runs import Lock, LockedError


def drawn(count: int = 12, *, modality: str = "mixed", size: int = 32) -> Raw:
    source = PhantomSource(count, size=size, modality=modality, healthy=0.2)
    return from_source(
        source, name="phantom", licence="none", classes=("background", "lesion"), rules={"modality": modality}
    )


def test_what_is_prepared_is_what_the_source_yields(tmp_path: Path) -> None:
    head = prepare(drawn(), tmp_path / "to", progress=False)
    source, prepared = PhantomSource(12, size=32, modality="mixed", healthy=0.2), PreparedSource(tmp_path / "to")
    assert (prepared.names, prepared.groups) == (source.names, source.groups)
    for i in range(12):
        ours, theirs = prepared.read(i), source.read(i)
        np.testing.assert_array_equal(ours.image, theirs.image)
        np.testing.assert_array_equal(ours.mask, theirs.mask)
        assert prepared.lesion_fraction(i) == pytest.approx((theirs.mask > 0).mean())
    assert head["counts"]["pairs"] == 12
    assert head["counts"]["empty_masks"] == sum(not source.read(i).mask.any() for i in range(12)) > 0
    assert (head["licence"], head["classes"], head["rules"]) == (
        "none",
        ["background", "lesion"],
        {"modality": "mixed"},
    )


def test_masks_are_8_bit_class_indices(tmp_path: Path) -> None:
    prepare(drawn(), tmp_path, progress=False)
    for file in (tmp_path / "masks").iterdir():
        with Image.open(file) as mask:
            assert mask.mode == "L"
            assert set(np.unique(np.asarray(mask)).tolist()) <= {0, 1}


def test_twice_gives_the_same_bytes_whatever_the_number_of_threads(tmp_path: Path) -> None:
    prepare(drawn(), tmp_path / "a", workers=1, progress=False)
    prepare(drawn(), tmp_path / "b", workers=3, progress=False)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_again_writes_nothing_anew(tmp_path: Path) -> None:
    prepare(drawn(), tmp_path, progress=False)
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "images").iterdir()}
    prepare(drawn(), tmp_path, progress=False)
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "images").iterdir()} == before


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_what_was_damaged_since_is_mended(tmp_path: Path, harm: str) -> None:
    prepare(drawn(), tmp_path, progress=False)
    good = contents(tmp_path)
    victim = tmp_path / "masks" / "mr-s0-p00001-02.png"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.unlink() if harm == "remove" else victim.write_bytes(data if harm == "flip" else data[:20])
    with pytest.raises(UserError, match=rf"1 files are not what was prepared(.|\n)*{victim.name}"):
        PreparedSource(tmp_path, verify=True)
    prepare(drawn(), tmp_path, progress=False)
    assert contents(tmp_path) == good
    PreparedSource(tmp_path, verify=True)


def test_files_that_change_in_the_source_are_read_again_and_removed_ones_go(tmp_path: Path) -> None:
    source = pictures(tmp_path / "from")
    prepare(any_folder(source), tmp_path / "to", progress=False)
    Image.fromarray(np.full((20, 24, 3), 9, dtype=np.uint8)).save(source / "images" / "p1.png")
    for kind in ("images", "masks"):
        (source / kind / "p4.png").unlink()
    (source / "images" / "p2.png").rename(source / "images" / "new.png")
    (source / "masks" / "p2.png").rename(source / "masks" / "new.png")
    prepare(any_folder(source), tmp_path / "to", progress=False)
    prepare(any_folder(source), tmp_path / "fresh", progress=False)
    assert contents(tmp_path / "to") == contents(tmp_path / "fresh")
    assert PreparedSource(tmp_path / "to").names == ["new", "p0", "p1", "p3", "p5"]


def test_other_rules_do_not_mix_with_what_is_there(tmp_path: Path) -> None:
    prepare(drawn(), tmp_path, progress=False)
    good = contents(tmp_path)
    with pytest.raises(UserError, match=r"by other rules \(modality mixed, now ct\); use another folder"):
        prepare(drawn(modality="ct"), tmp_path, progress=False)
    with pytest.raises(UserError, match="source phantom, now folder"):
        prepare(any_folder(pictures(tmp_path.parent / "other")), tmp_path, progress=False)
    assert contents(tmp_path) == good


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(UserError, match=r"holds other files \(thesis.tex"):
        prepare(drawn(), tmp_path, progress=False)
    assert (tmp_path / "thesis.tex").read_text() == "all my work"


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    with Lock(tmp_path / "to"), pytest.raises(LockedError, match="in use"):
        prepare(drawn(), tmp_path / "to", progress=False)


def test_every_bad_file_is_named_at_once_and_the_good_ones_are_kept(tmp_path: Path) -> None:
    source = pictures(tmp_path / "from")
    (source / "images" / "p1.png").write_bytes(b"not a picture")
    Image.fromarray(np.zeros((3, 3), dtype=np.uint8)).save(source / "masks" / "p4.png")
    with pytest.raises(UserError, match="2 problems") as caught:
        prepare(any_folder(source), tmp_path / "to", progress=False)
    assert "p1.png" in str(caught.value)
    assert "p4.png: 3×3 pixels, but its image" in str(caught.value)
    with pytest.raises(UserError, match=r"no prepared data: dataset.json is missing"):
        PreparedSource(tmp_path / "to")
    written = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "to" / "images").iterdir()}
    assert written.keys() == {"p0.png", "p2.png", "p3.png", "p5.png"}
    pictures(tmp_path / "mended")
    for file in ("images/p1.png", "masks/p4.png"):
        (source / file).write_bytes((tmp_path / "mended" / file).read_bytes())
    prepare(any_folder(source), tmp_path / "to", progress=False)
    assert {f: t for f, t in written.items() if (tmp_path / "to" / "images" / f).stat().st_mtime_ns != t} == {}
    assert len(PreparedSource(tmp_path / "to", verify=True)) == 6


def test_identical_images_share_a_group(tmp_path: Path) -> None:
    source = pictures(tmp_path / "from")
    for twin, of in (("p3", "p1"), ("p5", "p1")):
        (source / "images" / f"{twin}.png").write_bytes((source / "images" / f"{of}.png").read_bytes())
    head = prepare(any_folder(source), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    assert dict(zip(prepared.names, prepared.groups, strict=True)) == {
        "p0": "p0", "p1": "p1", "p2": "p2", "p3": "p1", "p4": "p4", "p5": "p1"
    }  # fmt: skip
    assert (head["counts"]["groups"], head["counts"]["identical_images"]) == (4, 2)
    # Where groups are patients, a picture that two of them share does not make them one.
    grouped = any_folder(source, FolderRule(group=r"p(\d)"))
    prepare(grouped, tmp_path / "patients", progress=False)
    assert PreparedSource(tmp_path / "patients").groups == ["0", "1", "2", "3", "4", "5"]


def test_a_full_disk_is_said_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "colon-s0-p00000-03.png":
            raise OSError(28, "No space left on device")
        return written(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match=r"cannot write .*p00000-03.png: No space left on device; start it again"):
            prepare(drawn(), tmp_path / "to", progress=False)
    prepare(drawn(), tmp_path / "to", progress=False)
    prepare(drawn(), tmp_path / "fresh", progress=False)
    assert contents(tmp_path / "to") == contents(tmp_path / "fresh")


def test_pools_and_prepared_folders_open_by_name(tmp_path: Path) -> None:
    raw = drawn()
    pooled = Raw(**{**vars(raw), "pools": lambda records: {"few": [records[2]["name"], records[0]["name"]]}})
    prepare(pooled, tmp_path / "to", progress=False)
    everything = open_source(str(tmp_path / "to"), masks=None, size=64, phantom=Phantom())
    few = open_source(f"{tmp_path / 'to'}:few", masks=None, size=64, phantom=Phantom())
    assert list(few.names) == [everything.names[2], everything.names[0]]
    assert few.read(0).image.tobytes() == everything.read(2).image.tobytes()
    with pytest.raises(UserError, match="no pool 'fwe'; did you mean 'few'"):
        PreparedSource(tmp_path / "to", "fwe")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 1', '"format": 9', "not of format 1"),
        ('"pairs": [', '"pairs": {', "not JSON"),
        ('"name": "colon-s0-p00000-00"', '"name": "../../secret"', "list of pairs is damaged"),
        ('"width": 32', '"width": "wide"', "list of pairs is damaged"),
        ('"few": ["colon-s0-p00000-00"', '"few": ["colon-s0-p00000-0X"', "lacks 'colon-s0-p00000-0X' of its pool"),
        ('"few": [', '"few": 3, "rest": [', "pools are damaged"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    raw = drawn(4)
    prepare(Raw(**{**vars(raw), "pools": lambda records: {"few": [records[0]["name"]]}}), tmp_path, progress=False)
    index = tmp_path / "dataset.json"
    text = index.read_text()
    assert old in text
    index.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        PreparedSource(tmp_path, "few")


def test_a_file_of_another_size_is_named_when_it_is_read(tmp_path: Path) -> None:
    prepare(drawn(4), tmp_path, progress=False)
    Image.fromarray(np.zeros((5, 6), dtype=np.uint8)).save(tmp_path / "masks" / "colon-s0-p00000-01.png")
    with pytest.raises(UserError, match=r"colon-s0-p00000-01.png: not the 32×32 picture that was prepared"):
        PreparedSource(tmp_path).read(1)


def command(to: Path, count: int) -> list[str]:
    words = ["data", "prepare", "phantom", "--to", str(to), "--phantom.count", str(count), "--phantom.size", "48"]
    return [sys.executable, "-m", "laworder", *words]


def heed_interrupts() -> None:
    """A shell starts its background jobs, and so perhaps this test, deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_killed_at_any_moment_it_finishes_when_started_again(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    count = 400
    subprocess.run(command(tmp_path / "whole", count), check=True, capture_output=True)
    target = tmp_path / "to"
    stopped = 0
    for written in (1, 60, 170, 290):
        process = subprocess.Popen(
            command(target, count), stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts
        )
        while process.poll() is None and len(list(target.glob("masks/*"))) < written:
            time.sleep(0.002)
        process.send_signal(stop)
        process.communicate()
        stopped += process.returncode == code
        assert not (target / "dataset.json").exists() or process.returncode == 0
    assert stopped >= 3
    subprocess.run(command(target, count), check=True, capture_output=True)
    assert contents(target) == contents(tmp_path / "whole")


def test_a_journal_line_cut_in_half_is_forgotten(tmp_path: Path) -> None:
    prepare(drawn(), tmp_path, progress=False)
    good = contents(tmp_path)
    (tmp_path / "dataset.json").unlink()
    journal = tmp_path / "journal.jsonl"
    content = journal.read_bytes()
    for keep in (len(content) - 1, len(content) - 40, len(content) // 2, 20, 0):
        journal.write_bytes(content[:keep])
        prepare(drawn(), tmp_path, progress=False)
        assert contents(tmp_path) == good


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = pictures(tmp_path / "from")
    to = tmp_path / "to"
    assert main(["data", "prepare", "folder", "--from", str(source), "--to", str(to)]) == 0
    assert capsys.readouterr().out == f"6 pairs in 6 groups, 0 with an empty mask: {to}\n"
    assert json.loads((to / "dataset.json").read_text())["name"] == "from"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["polyps"], "`data prepare polyps` needs --from"),
        (["folder", "--from", "nowhere"], "nowhere: no such folder or archive"),
        (["folder", "--from", ".", "--to", "prepared"], "lie in each other; choose another --to"),
        (["folder", "--from", "notes.txt", "--to", "x"], "notes.txt: neither a folder nor an archive"),
        (["brisc", "--from", "empty", "--to", "x"], "empty: no BRISC data"),
        (["polyps", "--from", "empty", "--to", "x"], "empty: no polyp data"),
        (["kits19", "--from", "empty", "--to", "x"], "empty: no KiTS19 data"),
        (["kits19", "--from", "empty", "--kits19.window", "bon"], "window 'bon': give one of abdomen"),
        (
            ["folder", "--from", "empty", "--to", "x"],
            "empty: 1 problem; mend or remove them:\n  empty: holds no images",
        ),
    ],
)
def test_wrong_words_are_one_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["data", "prepare", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x" / "dataset.json").exists()
