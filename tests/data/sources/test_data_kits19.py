"""KiTS19: slices by rule, orientation by affine, cases never torn; the paper's 5003 + 531 on the real labels."""

from __future__ import annotations

import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest

from laworder.data.parallel import over_cores
from laworder.data.prepare import prepare
from laworder.data.prepared import PreparedSource
from laworder.data.sources.ct_painter import paint_slice
from laworder.data.sources.kits19 import KitsRule, held_out_cases, in_ranges, kits19, read_labels, tumour_slices
from laworder.data.sources.volumes import open_volume
from laworder.errors import UserError

# Axes as KiTS19 stores them: slices downwards, rows backwards, columns to the left; 2 × 0.8 × 0.8 mm.
STORED = np.array([[0, 0, -0.8, 0], [0, -0.8, 0, 0], [-2.0, 0, 0, 0], [0, 0, 0, 1]])


def labels_of(seed: int, slices: int = 6, side: int = 40) -> np.ndarray:
    """A kidney on every slice, a tumour of 4·(k+1) pixels on slice k."""
    seen = np.zeros((slices, side, side), dtype=np.uint8)
    seen[:, 10:25, 22:36] = 1
    for k in range(slices):
        seen[k, 12:16, 24 : 25 + k] = 2
    return np.roll(seen, seed, axis=1)


def save(volume: np.ndarray, path: Path, affine: np.ndarray = STORED) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(volume, affine), path)


def challenge(root: Path, cases: int = 3, imaging: bool = True) -> Path:
    for case in range(cases):
        folder = root / f"case_{case:05d}"
        save(labels_of(case), folder / "segmentation.nii.gz")
        if imaging:
            save(scan_of(labels_of(case), case), folder / "imaging.nii.gz")
    return root


def scan_of(seen: np.ndarray, case: int) -> np.ndarray:
    return np.stack([paint_slice(one, key=f"{case}:{k}") for k, one in enumerate(seen)])


def small(**options: object) -> KitsRule:
    return KitsRule(**{"min_pixels": 12, "window": "-200,300", **options})  # type: ignore[arg-type]


def test_slices_with_enough_tumour_in_the_window(tmp_path: Path) -> None:
    head = prepare(kits19(challenge(tmp_path / "from"), small()), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    assert prepared.names == [f"case_{case:05d}-{k:04d}" for case in range(3) for k in (2, 3, 4, 5)]
    assert prepared.groups == [f"case_{case:05d}" for case in range(3) for _ in range(4)]
    record = prepared.records[5]
    assert (record["case"], record["slice"], record["spacing_mm"], record["slice_mm"]) == (
        "case_00001", 3, [0.8, 0.8], 2.0
    )  # fmt: skip
    pair = prepared.read(5)
    scan = scan_of(labels_of(1), 1)[3].astype(np.float64)
    np.testing.assert_array_equal(pair.mask, labels_of(1)[3] == 2)
    np.testing.assert_allclose(pair.image[..., 0], np.clip((scan + 200) / 500, 0, 1) * 255, atol=0.51)
    assert head["rules"]["window"] == [-200.0, 300.0]


@pytest.mark.parametrize("axes", ["RAS", "LPS", "SAR", "PIR", "IPL"])
def test_the_affine_decides_how_a_slice_lies(tmp_path: Path, axes: str) -> None:
    """The same patient, stored in another order of axes, gives the same pictures."""
    challenge(tmp_path / "from", cases=1)
    for file in (tmp_path / "from").rglob("*.nii.gz"):
        image = nibabel.load(file)
        assert isinstance(image, nibabel.Nifti1Image)
        ornt = nibabel.orientations
        turn = ornt.ornt_transform(ornt.io_orientation(image.affine), ornt.axcodes2ornt(tuple(axes)))
        (tmp_path / "turned" / "case_00000").mkdir(parents=True, exist_ok=True)
        nibabel.save(image.as_reoriented(turn), tmp_path / "turned" / "case_00000" / file.name)
    prepare(kits19(tmp_path / "from", small()), tmp_path / "a", progress=False)
    prepare(kits19(tmp_path / "turned", small()), tmp_path / "b", progress=False)
    assert (tmp_path / "a" / "dataset.json").read_text() == (tmp_path / "b" / "dataset.json").read_text()


@pytest.mark.parametrize(
    ("label", "values", "classes"),
    [("tumour", [0, 0, 1], 2), ("kidney+tumour", [0, 1, 1], 2), ("classes", [0, 2, 1], 3)],
)
def test_label_rules(tmp_path: Path, label: str, values: list[int], classes: int) -> None:
    head = prepare(kits19(challenge(tmp_path / "from", 1), small(label=label)), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    np.testing.assert_array_equal(prepared.read(0).mask, np.array(values)[labels_of(0)[2]])
    assert len(head["classes"]) == classes
    lesion = labels_of(0)[2] > 0 if label == "kidney+tumour" else labels_of(0)[2] == 2
    assert prepared.records[0]["lesion_pixels"] == lesion.sum()


def test_spacing_resamples_after_the_rule(tmp_path: Path) -> None:
    prepare(kits19(challenge(tmp_path / "from", 1), small(spacing=1.6)), tmp_path / "to", progress=False)
    prepared = PreparedSource(tmp_path / "to")
    assert len(prepared) == 4
    assert prepared.read(0).image.shape == (20, 20, 1)
    assert prepared.records[0]["spacing_mm"] == [1.6, 1.6]


def test_missing_scans_are_named_case_by_case(tmp_path: Path) -> None:
    root = challenge(tmp_path, cases=6)
    for case in (0, 1, 2, 4):
        (root / f"case_{case:05d}" / "imaging.nii.gz").unlink()
    with pytest.raises(
        UserError, match=r"4 of 6 cases have no imaging.nii.gz: case_00000–case_00002, case_00004; fetch"
    ):
        kits19(root)


def test_cases_without_labels_are_counted_and_left_out(tmp_path: Path) -> None:
    root = challenge(tmp_path / "data", cases=3)
    (root / "case_00002" / "segmentation.nii.gz").unlink()
    raw = kits19(tmp_path)
    assert [unit.key for unit in raw.units] == ["case_00000", "case_00001"]
    assert raw.notes == ("1 cases without labels are left out",)


def test_painted_scans_need_no_imaging(tmp_path: Path) -> None:
    rule = small(imaging="painted")
    head = prepare(kits19(challenge(tmp_path / "from", 2, imaging=False), rule), tmp_path / "to", progress=False)
    assert "painted from the labels" in head["notes"][0]
    pair = PreparedSource(tmp_path / "to").read(3)
    image, mask = pair.image[..., 0].astype(float), labels_of(0)[5]
    assert image[mask == 1].mean() > image[mask == 2].mean() > image[0, 0] + 50


@pytest.mark.parametrize("which", ["imaging", "segmentation"])
@pytest.mark.parametrize("harm", ["cut", "noise", "shape", "affine", "flat", "empty"])
def test_damaged_volumes_are_named(tmp_path: Path, which: str, harm: str) -> None:
    root = challenge(tmp_path / "from", 2)
    file = root / "case_00001" / f"{which}.nii.gz"
    data = file.read_bytes()
    match harm:
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "noise":
            file.write_bytes(b"nonsense" * 50)
        case "shape":
            save(np.zeros((6, 40, 41), dtype=np.uint8), file)
        case "affine":
            save(labels_of(1), file, STORED + np.array([[0, 0, 0, 7.0]] + [[0] * 4] * 3))
        case "flat":
            save(np.zeros((6, 40), dtype=np.uint8), file)
        case "empty":
            file.write_bytes(b"")
    with pytest.raises(UserError, match=r"kits19: 1 problem.*\n.*case_00001"):
        prepare(kits19(root, small(min_pixels=0)), tmp_path / "to", progress=False)


def test_strange_labels_are_named(tmp_path: Path) -> None:
    root = challenge(tmp_path / "from", 1)
    save(labels_of(0) * 2, root / "case_00000" / "segmentation.nii.gz")
    with pytest.raises(UserError, match=r"segmentation.nii.gz: labels must be whole numbers from 0 to 2"):
        prepare(kits19(root, small()), tmp_path / "to", progress=False)


def test_without_nibabel_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = challenge(tmp_path / "from", 1)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UserError, match=r"needs nibabel, which is not installed: pip install 'laworder\[medical\]'"):
        prepare(kits19(root, small()), tmp_path / "to", progress=False)


def test_held_out_cases_add_up_and_depend_on_the_seed_alone() -> None:
    sizes = {f"case_{i:05d}": 5 + i * 7 % 23 for i in range(60)}
    total = sum(sizes.values())
    found = {seed: held_out_cases(sizes, 100, seed) for seed in range(5)}
    assert all(sum(sizes[case] for case in cases) == 100 for cases in found.values())
    assert len({frozenset(cases) for cases in found.values()}) == 5
    assert held_out_cases(dict(reversed(sizes.items())), 100, 3) == found[3]
    assert held_out_cases({"a": 10, "b": 30}, 12, 0) == ["a"]
    assert sum(sizes[c] for c in held_out_cases(sizes, total, 0)) == total


def test_case_ranges() -> None:
    assert in_ranges(["case_00007"]) == "case_00007"
    assert in_ranges(["case_00000", "case_00001", "case_00009"]) == "case_00000–case_00001, case_00009"


@pytest.mark.slow
@pytest.mark.real_data
def test_the_papers_5534_slices_and_its_531_held_out(shared_data: Path) -> None:
    cases = sorted(folder.name for folder in (shared_data / "kits19").glob("case_*"))
    counts = dict.fromkeys(cases, 0)

    def look(index: int) -> None:
        seen = read_labels(open_volume(shared_data / "kits19" / cases[index] / "segmentation.nii.gz"))
        counts[cases[index]] = len(tumour_slices(seen, KitsRule().min_pixels))

    over_cores(look, len(cases))
    assert len(cases) == 210
    assert sum(counts.values()) == 5534
    for seed in range(5):
        held = held_out_cases(counts, 531, seed)
        assert sum(counts[case] for case in held) == 531
        assert sum(counts[case] for case in cases if case not in held) == 5003


@pytest.mark.real_data
def test_real_labels_with_painted_scans(shared_data: Path, tmp_path: Path) -> None:
    for case in ("case_00003", "case_00002"):
        (tmp_path / "from" / case).mkdir(parents=True)
        (tmp_path / "from" / case / "segmentation.nii.gz").symlink_to(
            shared_data / "kits19" / case / "segmentation.nii.gz"
        )
    head = prepare(kits19(tmp_path / "from", KitsRule(imaging="painted")), tmp_path / "to", progress=False)
    assert head["counts"]["pairs"] == 41 + 27
    # The nearest that whole cases come to 531 / 5534 of 68 slices is one of the two, or none.
    assert head["counts"]["pools"] in ({"law": 41, "law-test": 27}, {"law": 68})
    prepared = PreparedSource(tmp_path / "to")
    assert all(record["lesion_pixels"] >= 50 for record in prepared.records)
