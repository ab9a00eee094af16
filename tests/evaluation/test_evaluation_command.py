"""`laworder evaluate` from folders to JSON, table and page; and every input that it refuses, by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.tiny import CPU, Listed, phantoms, tiny_clip, tiny_vit, written
from laworder.cli import main
from laworder.errors import UserError
from laworder.evaluation.beside import Beside
from laworder.evaluation.doses import merged
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.inputs import check_places
from laworder.evaluation.section import Row
from laworder.segmentation.settings import TrainConfig
from laworder.segmentation.train import train

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """real, generated (others' images under the real masks), a judge trained on `real`, a CLIP and a ViT."""
    root = tmp_path_factory.mktemp("evaluate")
    real, others = phantoms(30, seed=0), phantoms(24, seed=7)
    written(real, root / "real")
    written([replace(o, name=r.name) for r, o in zip(real, others, strict=False)], root / "generated")
    written(phantoms(8, seed=11), root / "unseen")
    train(
        TrainConfig(data=str(root / "real"), out=root / "judge", size=64, epochs=2, batch=8, log="none", device="cpu")
    )
    tiny_clip(root / "tiny-clip")
    tiny_vit(root / "tiny-vit")
    return root


@pytest.fixture
def evaluate(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, generated: str = "generated", real: str = "real") -> tuple[int, str, str]:
        given = [str(folders / generated), str(folders / real), "--out", str(tmp_path / "out")]
        code = main(["evaluate", *given, "--cache", str(tmp_path / "cache"), "--resamples", "20", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_everything_at_once(evaluate: Run, folders: Path, tmp_path: Path) -> None:
    code, out, err = evaluate(
        *("--judge", str(folders / "judge"), "--clip", str(folders / "tiny-clip"), "--dataset", "polyps"),
        *("--encoder", str(folders / "tiny-vit"), "--device", "cpu"),
    )
    assert code == 0, err
    assert "finds the masks again" in out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert list(found["sections"]) == ["fidelity", "clip_i", "prdc", "recovery", "copying", "realism"]
    assert found["counts"] == {"generated": 24, "real": 30}
    recovery = found["sections"]["recovery"]
    assert recovery["generated"]["images"] == 24
    assert recovery["real_held_out"]["images"] == 3  # what the judge's own run held out
    assert recovery["generated"]["dice_by_lesion_size"]
    rows = {row["measure"]: row for row in found["table"]}
    assert rows["Mask recovery, Dice"]["published"][-1] == {"method": "LAW", "mean": 0.825, "std": 0.003, "table": 3}
    assert found["manifest"]["data"].keys() == {"generated", "real"}
    assert found["protocol_differences"]
    page = (tmp_path / "out" / "evaluation.html").read_text()
    for words in ("the paper&#x27;s", "Where the judge did worst", "LAW 0.825 ± 0.003", "real half vs real half"):
        assert words in page, words
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| CLIP-I, paired |" in table
    assert "a plain U-Net, not nnU-Net v2" in table  # the paper's protocol, in words


def test_only_what_is_asked_for_and_without_anything_to_download(evaluate: Run, tmp_path: Path) -> None:
    code, out, _ = evaluate("--only", "fidelity,realism")
    assert code == 0
    assert "the weights of Inception-2015 are not here" in out or "FID" in out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert list(found["sections"]) == ["fidelity", "realism"]
    assert "published" in found["table"][0]
    code, _, err = evaluate("--only", "fidelty")
    assert code == 2
    assert "did you mean 'fidelity'?" in err


def test_a_judge_trained_on_the_test_images_is_found_and_refused(evaluate: Run, folders: Path, tmp_path: Path) -> None:
    judge = ("--only", "recovery", "--judge", str(folders / "judge"))
    code, _, err = evaluate(*judge, "--held-out", str(folders / "real"))
    assert code == 2
    assert "was trained on 27 of the 30 real held-out images" in err
    assert "--force" in err
    code, out, _ = evaluate(*judge, "--held-out", str(folders / "real"), "--force")
    assert code == 0
    assert "too high to mean anything" in out
    # Under other names, in another folder, mixed with others: contents decide.
    copy = tmp_path / "copy"
    shutil.copytree(folders / "unseen", copy)
    name = sorted(p.name for p in (folders / "real" / "images").iterdir())[0]
    held = json.loads((folders / "judge" / "evaluation.json").read_text())["validation"]["images"]
    for k, file in enumerate(sorted((folders / "real" / "images").iterdir())[: held + 1]):
        for part in ("images", "masks"):
            shutil.copy(folders / "real" / part / file.name, copy / part / f"renamed-{k}.png")
    code, _, err = evaluate(*judge, "--held-out", str(copy))
    assert code == 2, name
    assert "real held-out images" in err
    code, out, _ = evaluate(*judge, "--held-out", str(folders / "unseen"))
    assert code == 0
    code, _, err = evaluate(*judge, "--protocol", "held-out")
    assert code == 2
    assert "of the 30 real held-out images" in err


def test_a_judge_whose_data_is_gone_is_compared_by_the_hash_of_the_whole(
    evaluate: Run, folders: Path, tmp_path: Path
) -> None:
    shutil.copytree(folders / "judge", tmp_path / "judge")
    manifest = json.loads((tmp_path / "judge" / "manifest.json").read_text())
    manifest["config"]["data"] = str(tmp_path / "gone")
    (tmp_path / "judge" / "manifest.json").write_text(json.dumps(manifest))
    judge = ("--only", "recovery", "--judge", str(tmp_path / "judge"))
    code, _, err = evaluate(*judge, "--held-out", str(folders / "real"))
    assert code == 2
    assert "was trained on 30 of the 30" in err
    code, out, _ = evaluate(*judge, "--held-out", str(folders / "unseen"))
    assert code == 0
    assert "only whole sets are compared" in out


def test_bad_folders_are_named_and_explained(evaluate: Run, folders: Path, tmp_path: Path) -> None:
    def refused(*words: str, **places: str) -> str:
        code, _, err = evaluate("--only", "realism", *words, **places)
        assert code == 2
        assert "Traceback" not in err
        assert not (tmp_path / "out").exists()
        return err

    assert "same folder" in refused(real="generated")
    inner = tmp_path / "outer"
    shutil.copytree(folders / "real", inner)
    shutil.copytree(folders / "unseen", inner / "made")
    assert "lies inside" in refused(generated=str(inner / "made"), real=str(inner))
    lacking = tmp_path / "lacking"
    shutil.copytree(folders / "unseen", lacking)
    gone = sorted((lacking / "masks").iterdir())[0]
    gone.unlink()
    said = refused(generated=str(lacking))
    assert "every generated image needs the mask that made it" in said
    assert gone.name in said
    one = tmp_path / "one"
    written(phantoms(1, seed=3), one)
    assert "holds 1 pair; at least 2" in refused(generated=str(one))
    mixed = tmp_path / "mixed"
    shutil.copytree(folders / "unseen", mixed)
    for part in ("images", "masks"):
        file = sorted((mixed / part).iterdir())[0]
        Image.open(file).resize((48, 48), Image.Resampling.NEAREST).save(file)
    assert "no folder" in refused(generated="nowhere")
    said = refused(generated=str(mixed))
    assert "2 different sizes" in said
    assert "48×48" in said
    code, _, err = evaluate("--only", "realism", "--force", generated=str(mixed))
    assert code == 0
    assert "how sharp pictures" in err


def test_pools_that_share_pairs_are_refused(tmp_path: Path) -> None:
    prepared = merged(Listed(phantoms(4, seed=0)), Listed(phantoms(4, seed=7)), tmp_path / "data")
    check_places({"generated": f"{prepared}:synthetic", "real": f"{prepared}:real"})
    for generated in (f"{prepared}:synthetic", f"{prepared}:real"):
        with pytest.raises(UserError, match="generated and real share 4 pairs"):
            check_places({"generated": generated, "real": str(prepared)})


def test_a_wrong_file_is_told_before_anything_is_computed(
    evaluate: Run, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FeatureStore, "_compute", lambda *_: pytest.fail("computed first"))
    empty, vit = tmp_path / "empty", str(folders / "tiny-vit")
    empty.mkdir()
    (tmp_path / "bad.pth").write_bytes(b"nothing")
    shutil.copytree(vit, tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"cut")
    np.savez(tmp_path / "narrow.npz", mu=np.zeros(3), sigma=np.zeros((3, 3)))
    for words, said in (
        (("--clip", str(empty)), f"{empty}: no vision model"),
        (("--clip", str(tmp_path / "cut")), "cut: no vision model"),
        (("--inception", str(tmp_path / "bad.pth")), "bad.pth: not the weights of Inception-2015"),
        (("--judge", str(empty)), str(empty)),
        (("--judge", str(folders / "judge"), "--held-out", str(folders / "real")), "was trained on 27"),
        (("--statistics", str(tmp_path / "narrow.npz")), "narrow.npz: "),
    ):
        code, _, err = evaluate("--encoder", vit, *words)
        assert code == 2, words
        assert said in err
        assert "Traceback" not in err
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").write_text("")
    code, _, err = evaluate()
    assert code == 2
    assert "is a file; give a folder" in err


def test_held_out_images_are_not_taken_for_training_images(evaluate: Run, folders: Path, tmp_path: Path) -> None:
    held_out = ("--only", "copying", "--protocol", "held-out")
    code, out, err = evaluate(*held_out)
    assert code == 0, err
    assert "not measured: give --train, the images that the generator was trained on" in out
    mixed = tmp_path / "train"
    shutil.copytree(folders / "unseen", mixed)
    for file in sorted((folders / "real" / "images").iterdir())[:3]:
        for part in ("images", "masks"):
            shutil.copy(folders / "real" / part / file.name, mixed / part / f"renamed-{file.name}")
    code, _, err = evaluate(*held_out, "--train", str(mixed))
    assert code == 0
    assert "3 of the 30 real images are among the 11 training images, pixel for pixel" in err


def test_the_papers_numbers_stand_beside_the_measure_and_protocol_that_they_belong_to() -> None:
    fid = Row("FID", 1.0, metric="fid")
    assert Beside("polyps", "train").text(fid).startswith("LAW 52.32 ± 0.70; ControlNet 65.54 ± 0.54")
    assert Beside("polyps", "held-out").text(fid).startswith("LAW 108.43 ± 0.71")
    assert Beside("brisc", "train").text(fid) == ""
    assert Beside(None, "train").text(fid) == ""
    assert Beside("polyps", "train").text(Row("KID", 1.0)) == ""
    assert "equal counts" in Beside("polyps", "train").protocols([fid])[0]


def test_overlays_show_best_and_worst_in_bounded_number(folders: Path) -> None:
    from laworder.evaluation.judging import open_judge, scored
    from laworder.evaluation.recovery import SHOWN, _Watched

    pairs = Listed(phantoms(20, seed=3))
    watched = _Watched(open_judge(str(folders / "judge"), device=CPU), 20)
    scores = scored(watched, pairs)
    kept = watched.kept(scores)
    lesions = scores.fraction > 0
    assert len(kept["worst"]) == SHOWN
    assert kept["worst"][0][1] == pytest.approx(float(scores.dice[lesions].min()))
    assert not {name for name, _, _ in kept["best"]} & {name for name, _, _ in kept["worst"]}
    assert np.isfinite(scores.summary()["dice"])
