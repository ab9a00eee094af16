"""NIfTI volumes: the mask has the volume's geometry, and the result does not depend on how axes are stored."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest
from bright import saved
from nibabel.orientations import apply_orientation, axcodes2ornt, inv_ornt_aff, ornt_transform

import laworder
from laworder.cli import main
from laworder.order.hub import Preprocessing
from laworder.segmentation.volumes import as_seen, coarsest_plane, own_range, to_gray

SPACING = {"axial": (0.8, 0.7, 3.0), "coronal": (0.8, 3.0, 0.7), "sagittal": (3.0, 0.8, 0.7)}


def predict(*words: str) -> int:
    return main(["seg", "predict", *words, "--device", "cpu"])


def volume(dtype: str = "int16") -> np.ndarray:
    """Dark, with a bright box, in LPS order."""
    values = np.full((20, 24, 9), -900, dtype)
    values[4:12, 6:15, 2:5] = 300
    return values


def affine_of(spacing: tuple[float, float, float]) -> np.ndarray:
    """LPS axes, with an offset."""
    return np.array([[-spacing[0], 0, 0, 11.5], [0, -spacing[1], 0, -7.25], [0, 0, spacing[2], 42.0], [0, 0, 0, 1.0]])


def stored(values: np.ndarray, affine: np.ndarray, codes: str) -> nibabel.Nifti1Image:
    """The same volume with its axes in another order and direction."""
    turn = ornt_transform(axcodes2ornt("LPS"), axcodes2ornt(codes))
    return nibabel.Nifti1Image(apply_orientation(values, turn), affine @ inv_ornt_aff(turn, values.shape))


def lps(image: nibabel.Nifti1Image) -> np.ndarray:
    turn = ornt_transform(nibabel.io_orientation(image.affine), axcodes2ornt("LPS"))
    return apply_orientation(np.asarray(image.dataobj), turn)


@pytest.mark.parametrize("name", ["ct.nii", "ct.nii.gz"])
@pytest.mark.parametrize("codes", ["LPS", "RAS", "SPL", "AIR"])
def test_a_mask_has_its_volumes_geometry(tmp_path: Path, name: str, codes: str) -> None:
    image = stored(volume(), affine_of(SPACING["axial"]), codes)
    image.header.set_xyzt_units("mm", "sec")
    image.header["qform_code"], image.header["sform_code"] = 1, 2
    nibabel.save(image, tmp_path / name)
    out = tmp_path / "out"
    model = saved(tmp_path / "model")
    words = [model, str(tmp_path / name), "--out", str(out), "--mode", "window", "--probabilities"]
    assert predict(*words) == 0
    mask = nibabel.load(out / name)
    given = nibabel.load(tmp_path / name)
    assert np.array_equal(mask.affine, given.affine)
    assert mask.shape == given.shape
    assert mask.header.get_zooms() == given.header.get_zooms()
    assert (mask.header["qform_code"], mask.header["sform_code"]) == (1, 2)
    assert mask.header.get_xyzt_units() == given.header.get_xyzt_units()
    assert mask.get_data_dtype() == np.uint8
    assert np.array_equal(np.asarray(mask.dataobj), np.asarray(given.dataobj) > 0)
    levels = nibabel.load(out / name.replace("ct", "ct_probability"))
    assert levels.get_data_dtype() == np.float32
    assert np.array_equal(np.asarray(levels.dataobj) > 0.5, np.asarray(given.dataobj) > 0)
    assert np.array_equal(levels.affine, given.affine)


def test_the_order_of_the_axes_changes_nothing(tmp_path: Path) -> None:
    """With a model that does see shape: the same anatomy stored in three ways has the same mask, to the voxel."""
    model = laworder.create("order_backbone")
    model.preprocessing = Preprocessing(size=32)
    model.save_pretrained(tmp_path / "model")
    values = np.random.default_rng(1).normal(size=(40, 36, 5)).astype(np.float32)
    found = []
    for codes in ("LPS", "RAS", "ISA"):
        nibabel.save(stored(values, affine_of(SPACING["axial"]), codes), tmp_path / "a.nii.gz")
        words = [str(tmp_path / "model"), str(tmp_path / "a.nii.gz"), "--out", str(tmp_path / codes)]
        assert predict(*words, "--probabilities") == 0
        found.append(lps(nibabel.load(tmp_path / codes / "a_probability.nii.gz")))
    assert found[0].std() > 0
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_slices_stand_as_a_radiologist_sees_them() -> None:
    """A bright front, right, head: in axial slices top and left, in coronal ones top."""
    front, right, head = (np.zeros((6, 7, 8)) for _ in range(3))
    front[:, 0], right[0], head[:, :, -1] = 1, 1, 1
    affine = affine_of((1, 1, 1))
    assert as_seen(front, affine, "axial")[3, 0].all()
    assert as_seen(right, affine, "axial")[3, :, 0].all()
    assert as_seen(head, affine, "coronal")[3, 0].all()
    assert as_seen(right, affine, "coronal")[3, :, 0].all()
    assert as_seen(head, affine, "sagittal")[3, 0].all()
    assert as_seen(front, affine, "sagittal")[3, :, 0].all()


def test_kits_volumes_are_axial_with_slices_first() -> None:
    """KiTS19 stores slices, rows, columns; a slice of it is already as it is seen."""
    affine = np.array([[0, 0, -0.8, 0], [0, -0.8, 0, 0], [-3.0, 0, 0, 0], [0, 0, 0, 1.0]])
    values = np.random.default_rng(2).normal(size=(5, 6, 7))
    assert coarsest_plane(affine) == "axial"
    assert np.array_equal(as_seen(values, affine, "axial"), values[::-1])


@pytest.mark.parametrize("plane", SPACING)
def test_the_coarsest_plane_is_sliced(plane: str) -> None:
    assert coarsest_plane(affine_of(SPACING[plane])) == plane
    assert coarsest_plane(affine_of((1, 1, 1))) == "axial"
    view = as_seen(volume(), affine_of(SPACING[plane]), plane)
    assert len(view) == volume().shape[("sagittal", "coronal", "axial").index(plane)]
    assert sorted(view.ravel()) == sorted(volume().ravel())


def test_range(tmp_path: Path) -> None:
    values = volume().astype(np.float32)
    values[0, 0, 0] = np.nan
    assert own_range(values) == (-900, 300)
    assert own_range(np.full((2, 2, 2), 7.0)) == (7.0, 8.0)
    assert own_range(np.zeros((2, 2, 2), np.uint8)) == (0, 255)
    gray = to_gray(np.array([[np.nan, -np.inf, -900, -300, 300, 9e9]]), -900, 300)
    assert gray[0, :, 0].tolist() == [0, 0, 0, 128, 255, 255]
    nibabel.save(nibabel.Nifti1Image(volume(), affine_of(SPACING["axial"])), tmp_path / "a.nii")
    words = [saved(tmp_path / "model"), str(tmp_path / "a.nii"), "--mode", "window", "--out"]
    assert predict(*words, str(tmp_path / "wide"), "--intensity", "-5000,5000") == 0
    assert np.asarray(nibabel.load(tmp_path / "wide" / "a.nii").dataobj)[5, 7, 3] == 1  # 300 is 135 of 255
    assert predict(*words, str(tmp_path / "high"), "--intensity", "0,5000") == 0
    assert np.asarray(nibabel.load(tmp_path / "high" / "a.nii").dataobj).max() == 0


def test_planes_by_hand(tmp_path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(volume(), affine_of(SPACING["axial"])), tmp_path / "a.nii")
    model = saved(tmp_path / "model")
    for plane, slices in (("axial", 9), ("coronal", 24), ("sagittal", 20), ("auto", 9)):
        out = tmp_path / plane
        assert predict(model, str(tmp_path / "a.nii"), "--out", str(out), "--plane", plane, "--mode", "window") == 0
        assert np.array_equal(np.asarray(nibabel.load(out / "a.nii").dataobj), volume() > 0)
        assert (out / "predictions.csv").read_text().splitlines()[1].startswith(f"a.nii,a.nii,{slices},")


def test_scaled_values_and_a_trailing_axis(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(volume()[..., None], affine_of(SPACING["axial"]))
    image.header.set_slope_inter(2.0, 50.0)
    nibabel.save(image, tmp_path / "a.nii.gz")
    assert predict(saved(tmp_path / "model"), str(tmp_path / "a.nii.gz"), "--out", str(tmp_path / "out")) == 0
    mask = nibabel.load(tmp_path / "out" / "a.nii.gz")
    assert mask.shape == (20, 24, 9, 1)
    assert set(np.unique(mask.get_fdata())) == {0, 1}


def test_damaged_volumes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    whole = nibabel.Nifti1Image(volume(), affine_of(SPACING["axial"])).to_bytes()
    nibabel.save(nibabel.Nifti1Image(volume(), affine_of(SPACING["axial"])), folder / "good.nii.gz")
    packed = (folder / "good.nii.gz").read_bytes()
    (folder / "cut.nii.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "torn.nii").write_bytes(whole[:1000])
    (folder / "empty.nii").touch()
    (folder / "text.nii.gz").write_bytes(gzip.compress(b"hello"))
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 4), np.uint8), np.eye(4)), folder / "flat.nii")
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 4, 5, 2), np.uint8), np.eye(4)), folder / "moving.nii")
    out = tmp_path / "out"
    assert predict(saved(tmp_path / "model"), str(folder), "--out", str(out)) == 1
    captured = capsys.readouterr()
    assert "1 of 7 predicted; 6 could not be read" in captured.out
    for name in ("cut.nii.gz", "torn.nii", "empty.nii", "text.nii.gz", "flat.nii", "moving.nii"):
        assert sum(name in line for line in captured.err.splitlines()) == 1
    assert sorted(p.name for p in out.iterdir()) == ["good.nii.gz", "predictions.csv", "predictions.json"]
