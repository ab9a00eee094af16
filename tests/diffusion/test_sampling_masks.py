"""What images are drawn for: masks of a data set, of a folder, or varied ones that stay plausible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from laworder.config import build
from laworder.data.audit.components import label
from laworder.data.pairs import Pair
from laworder.data.sources.folder import FolderSource
from laworder.diffusion.sampling.field import field_of_view, grown, largest, shrunk, union_field
from laworder.diffusion.sampling.jitter import Jitter, make_mask
from laworder.diffusion.sampling.jobs import chosen, even_batch, jobs_of
from laworder.diffusion.sampling.masks import Masks, at_size, open_masks, survey
from laworder.diffusion.sampling.prompts import Prompts
from laworder.diffusion.sampling.settings import SampleConfig
from laworder.errors import UserError

SIDE = 96
GRID = np.mgrid[:SIDE, :SIDE]


def disc(y: float, x: float, radius: float) -> np.ndarray:
    return (np.hypot(GRID[0] - y, GRID[1] - x) <= radius).astype(np.uint8)


VIEW = disc(48, 48, 44) > 0


def wanted(**more: Any) -> SampleConfig:
    return build(SampleConfig, {"model": "model", "data": "phantom", **more})


class Listed:
    """Pairs in memory behind the `Source` protocol."""

    def __init__(self, masks: dict[str, np.ndarray], image: np.ndarray | None = None) -> None:
        self.masks, self.image = masks, image
        self.names = self.groups = list(masks)

    def __len__(self) -> int:
        return len(self.masks)

    def read(self, index: int) -> Pair:
        mask = self.masks[self.names[index]]
        image = np.zeros((*mask.shape, 0), np.uint8) if self.image is None else self.image
        return Pair(image=image, mask=mask, name=self.names[index], group=self.names[index])


def vary(mask: np.ndarray, number: int, field: np.ndarray = VIEW, **more: Any) -> np.ndarray:
    area = int((mask > 0).sum())
    told: dict[str, Any] = {"areas": (area // 2, area * 2), "jitter": Jitter(), "seed": 0, "name": "m", **more}
    return make_mask(mask, field, number=number, **told)


@settings(max_examples=80, phases=(Phase.explicit, Phase.generate))
@given(
    place=st.tuples(st.floats(25, 70), st.floats(25, 70), st.floats(2, 14)),
    number=st.integers(0, 2**20),
    two=st.booleans(),
)
def test_a_made_mask_stays_in_the_field_in_one_piece_and_of_a_real_size(
    place: tuple[float, float, float], number: int, two: bool
) -> None:
    mask = disc(*place)
    if two:
        mask[(mask > 0) & (GRID[1] > place[1])] = 2
    areas = (max(1, int(mask.astype(bool).sum() * 0.7)), int(mask.astype(bool).sum() * 1.6) + 1)
    field = VIEW | (mask > 0)
    made = vary(mask, number, field, areas=areas)
    assert not (made > 0)[~field].any()
    assert label(made > 0)[1] == 1
    assert areas[0] <= (made > 0).sum() <= areas[1]
    assert set(np.unique(made)) == set(np.unique(mask))


def test_a_made_mask_is_a_function_of_seed_name_and_number() -> None:
    mask = disc(40, 50, 12)
    first = vary(mask, 3)
    assert np.array_equal(first, vary(mask, 3))
    others = [vary(mask, 4), vary(mask, 3, seed=1), vary(mask, 3, name="n")]
    assert all(not np.array_equal(first, other) for other in [mask, *others])


def test_jitter_moves_no_farther_than_it_says() -> None:
    mask = disc(48, 48, 8)
    centres = [np.argwhere(vary(mask, k, jitter=Jitter(shift=0.1))).mean(0) for k in range(60)]
    moved = np.hypot(*(np.stack(centres) - 48).T)
    assert moved.max() <= 0.1 * SIDE + 2
    assert moved.mean() > 2
    still = Jitter(shift=0, size=0, turn=0, stretch=0, bend=0, mirror=False)
    # Where nothing may change, only the outline's smoothing is left.
    assert ((vary(mask, 0, jitter=still) > 0) ^ (mask > 0)).mean() < 0.01


def test_sizes_follow_the_real_ones() -> None:
    low, high = Jitter(smallest=0.1, largest=0.9).areas([0, 0, *range(10, 110)])
    assert (low, high) == (20, 99)
    tiny, huge = disc(48, 48, 2), disc(48, 48, 30)
    assert (vary(tiny, 0, areas=(50, 400)) > 0).sum() >= 50
    assert (vary(huge, 0, areas=(50, 400)) > 0).sum() <= 400
    with pytest.raises(UserError, match="every mask is empty; there is no lesion to vary"):
        Jitter().areas([0, 0])
    with pytest.raises(UserError, match=r"smallest .* lies above largest"):
        Jitter(smallest=0.9, largest=0.1).areas([5])


def test_what_lies_deep_in_the_field_stays_deep() -> None:
    """A tumour of the brain does not move into skull and scalp."""
    mask = disc(48, 70, 6)
    inner = shrunk(VIEW, SIDE // 12)
    assert all(not (vary(mask, k) > 0)[~shrunk(VIEW, SIDE // 32)].any() for k in range(40))
    assert inner[mask > 0].all()


def test_an_empty_mask_stays_empty_and_two_lesions_may_stay_two() -> None:
    assert not vary(np.zeros((SIDE, SIDE), np.uint8), 0, areas=(1, 2)).any()
    both = disc(40, 30, 8) | disc(60, 65, 8)
    counts = {label(vary(both, k) > 0)[1] for k in range(20)}
    assert 2 in counts
    assert max(counts) == 2


def test_the_field_is_what_lies_inside_the_dark_surround() -> None:
    rng = np.random.default_rng(0)
    view = np.kron(VIEW, np.ones((3, 3), bool))
    image = np.where(view[..., None], 120, 6) + rng.integers(-5, 6, (3 * SIDE, 3 * SIDE, 3))
    image[120:160, 120:160] = 3  # the lumen is dark, but inside
    found = field_of_view(image.clip(0, 255).astype(np.uint8))
    assert (found ^ view).mean() < 0.04
    assert found[120:160, 120:160].all()


def test_a_picture_without_a_surround_is_all_field() -> None:
    assert field_of_view(np.full((SIDE, SIDE, 3), 90, np.uint8)).all()
    assert field_of_view(np.full((SIDE, SIDE, 3), 4, np.uint8)).all()


def test_writing_in_the_surround_is_no_field() -> None:
    image = np.where(VIEW[..., None], 150, 0).astype(np.uint8).repeat(3, axis=2)[..., :3]
    image[2:6, 2:12] = 255
    found = field_of_view(image)
    assert not found[:8, :14].any()


def test_without_images_the_field_is_where_real_lesions_were() -> None:
    seen = (disc(40, 40, 6) | disc(40, 53, 6)) > 0
    field = union_field(seen)
    assert field[seen].all()
    assert field.mean() < 0.2


def test_growing_and_shrinking_are_opposites_on_a_disc() -> None:
    shape = disc(48, 48, 20) > 0
    assert np.array_equal(shrunk(grown(shape, 5), 5), shape)
    assert grown(shape, 0) is shape
    assert (grown(shape, 5) ^ (disc(48, 48, 25) > 0)).mean() < 0.02
    two = shape | (disc(10, 10, 3) > 0)
    assert np.array_equal(largest(two), shape)


def test_one_look_at_all_masks() -> None:
    masks = {"a": disc(40, 40, 10), "b": np.zeros((SIDE, SIDE), np.uint8), "c": disc(50, 50, 0.5) * 3}
    found = survey(Listed(masks), 48)
    assert found.areas == [int((at_size(Listed(masks).read(0), 48)[0] > 0).sum()), 0, found.areas[2]]
    assert found.highest in (1, 3)
    assert found.seen.any()
    assert survey(Listed(masks), 48, workers=1).digest == found.digest
    assert survey(Listed({**masks, "b": masks["a"]}), 48).digest != found.digest
    lines = survey(Listed({**masks, "d": speck()}), 48).remarks(48)
    assert lines[0] == "note: 1 of 4 masks are empty; their images are to show no lesion"
    assert "lesions are too small to be seen at 48×48" in lines[1]


def speck() -> np.ndarray:
    """A lesion of one pixel that nearest passes over."""
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[40, 40] = 1
    small = np.array(Image.fromarray(mask).resize((48, 48), Image.Resampling.NEAREST))
    return mask if not small.any() else np.roll(mask, 1, axis=0)


def test_inverted_masks_are_refused() -> None:
    inverted = {name: 1 - disc(48, 48, 15) for name in "ab"}
    with pytest.raises(UserError, match=r"look inverted: in 2 of 3 .*first 'a'.*must be white on black"):
        survey(Listed({**inverted, "c": disc(48, 48, 9)}), 48)
    # A few large ones are no reason: lesions may fill the picture.
    survey(Listed({**inverted, **{name: disc(48, 48, 9) for name in "cdef"}}), 48)


def test_masks_of_a_folder_of_masks_alone(tmp_path: Path) -> None:
    for name in ("x", "y"):
        Image.fromarray(disc(40, 40, 12) * 255).save(tmp_path / f"{name}.png")
    source = open_masks(wanted(data=str(tmp_path)), 48)
    assert list(source.names) == ["x", "y"]
    config = wanted(data=str(tmp_path), augment=True)
    masks = Masks.of(source, 48, survey(source, 48), config)
    assert masks.read(0, 0).shape == (48, 48)
    assert not np.array_equal(masks.read(0, 0), masks.read(0, 1))
    (tmp_path / "z.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"1 problem with the masks.*\n.*z\.png"):
        survey(open_masks(wanted(data=str(tmp_path)), 48), 48)


def test_folders_that_hold_no_masks_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no masks in a format that is read here"):
        open_masks(wanted(data=str(tmp_path)), 48)
    with pytest.raises(UserError, match="is no folder"):
        open_masks(wanted(data=str(tmp_path / "none")), 48)


def test_images_and_masks_that_do_not_fit_are_named(tmp_path: Path) -> None:
    for name, size in (("a", 40), ("b", 32)):
        Image.new("RGB", (40, 40)).save(tmp_path / f"{name}.png")
        Image.new("L", (size, size)).save(tmp_path / f"{name}_mask.png")
    with pytest.raises(UserError, match=r"b_mask\.png: 32×32 pixels, but its image .*b\.png has 40×40"):
        survey(open_masks(wanted(data=str(tmp_path)), 48), 48)
    (tmp_path / "a_mask.png").unlink()
    with pytest.raises(UserError, match=r"1 problem with images and masks; mend or remove them:\n.*a\.png: no mask"):
        open_masks(wanted(data=str(tmp_path)), 48)


def test_names_and_numbers_make_jobs() -> None:
    jobs = jobs_of(["a", "b"], ["p", "q"], count=2, augment=False)
    assert [job.name for job in jobs] == ["a", "b", "a-n1", "b-n1"]
    assert [job.name for job in jobs_of(["a"], ["p"], count=2, augment=True)] == ["a-v0", "a-v1"]
    seeds = {job.noise_seed(seed) for job in jobs for seed in (0, 1)}
    assert len(seeds) == 8
    assert chosen(jobs, ("b-n1", "a", "a")) == [jobs[3], jobs[0]]
    with pytest.raises(UserError, match="only: no image is called 'a-n7'; did you mean 'a-n1'"):
        chosen(jobs, ("a-n7",))
    with pytest.raises(UserError, match=r"two images would be called 'a-n1'.*rename one of the masks"):
        jobs_of(["a", "a-n1"], ["p", "q"], count=2, augment=False)


@pytest.mark.parametrize(("count", "most", "size"), [(20, 16, 10), (16, 16, 16), (3, 16, 3), (33, 16, 11), (0, 16, 0)])
def test_batches_are_all_alike(count: int, most: int, size: int) -> None:
    assert even_batch(count, most) == size


def test_prompts_are_those_of_training() -> None:
    card = {"backbone": "tiny", "prompt": "", "class_prompts": ["a polyp", "a tumour"], "prompts": ["", "a polyp"]}
    prompts = Prompts.of(card, None, highest=2)
    assert prompts(disc(40, 40, 9)) == "a polyp"
    assert prompts(disc(40, 40, 9) * 2 + disc(80, 80, 3)) == "a tumour"
    assert prompts(np.zeros((9, 9), np.uint8)) == ""
    assert Prompts.of(card, "a polyp", highest=9)(disc(40, 40, 9) * 2) == "a polyp"
    with pytest.raises(UserError, match="hold lesion class 3, but the model was trained with prompts for 2"):
        Prompts.of(card, None, highest=3)
    with pytest.raises(UserError, match=r"prompt: 'a polip' is none .*; did you mean 'a polyp'"):
        Prompts.of(card, "a polip", highest=1)
    assert Prompts.of({**card, "backbone": "sd15"}, "anything", highest=1).everywhere == "anything"


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("polyps/TrainDataset/image", "polyps/TrainDataset/masks"),
        ("brisc2025/segmentation_task/train/images", "brisc2025/segmentation_task/train/masks"),
    ],
)
def test_real_lesions_vary_within_their_field(shared_data: Path, images: str, masks: str) -> None:
    """Almost no real lesion lies outside the field that is found, and made ones keep to it."""
    whole = FolderSource(shared_data / images, shared_data / masks, check=False)
    picked = np.random.default_rng(0).permutation(len(whole))[:40]

    class Some(Listed):
        def read(self, index: int) -> Pair:
            return whole.read(int(picked[index]))

    source = Some({whole.names[i]: np.zeros((1, 1)) for i in picked})
    made = Masks.of(source, 128, survey(source, 128, progress=False), wanted(augment=True))
    for index in range(len(source)):
        mask, image = at_size(source.read(index), 128)
        assert image is not None
        field = field_of_view(image)
        assert field[mask > 0].mean() > 0.9
        varied = made.read(index, 0) > 0
        assert not varied[~(field | (mask > 0))].any()
        assert made.areas[0] * 0.8 <= varied.sum() <= made.areas[1] * 1.2
