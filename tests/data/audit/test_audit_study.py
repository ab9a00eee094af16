"""The audit as a whole, on drawn data with faults planted in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from laworder.data.audit import Audit, audit
from laworder.data.audit.charts import survival_chart
from laworder.data.audit.leaks import across
from laworder.data.audit.page import make_page
from laworder.data.audit.record import as_dict, as_json
from laworder.data.audit.table import as_markdown, as_text
from laworder.data.audit.tables import tables
from laworder.data.pairs import Pair, Source
from laworder.data.sources.phantom import PhantomSource
from laworder.errors import UserError


class Listed:
    """Pairs in a list."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs_held = list(pairs)
        self.names = [pair.name for pair in pairs]
        self.groups = [pair.group for pair in pairs]

    def __len__(self) -> int:
        return len(self.pairs_held)

    def read(self, index: int) -> Pair:
        return self.pairs_held[index]


def drawn(count: int, *, seed: int = 0, modality: str = "mr") -> list[Pair]:
    source = PhantomSource(count, size=96, modality=modality, seed=seed, pairs_per_patient=1, lesion_range=(0.01, 0.08))
    return [source.read(i) for i in range(count)]


def run(**splits: Sequence[Pair]) -> Audit:
    return audit({name: Listed(pairs) for name, pairs in splits.items()}, sizes=(64,), progress=False)


def texts(result: Audit, severity: str) -> str:
    return "\n".join(f.text for f in result.findings if f.severity == severity)


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return drawn(48)


def test_sound_data_has_no_errors(pairs: list[Pair]) -> None:
    result = run(train=pairs[:32], test=pairs[32:])
    assert result.errors == []
    assert result.splits[0].alignment is not None
    assert result.splits[0].alignment.own > 0.7
    assert [len(split.looks) for split in result.splits] == [32, 16]


def test_copies_across_splits_are_errors_and_inside_one_are_warnings(pairs: list[Pair]) -> None:
    planted = [replace(pairs[k], name=f"again-{k}", group=f"again-{k}") for k in (1, 2)]
    result = run(train=[*pairs[:32], planted[0]], test=[*pairs[32:], planted[1]])
    assert "1 image of train and 1 of test are identical" in texts(result, "error")
    assert "1 group of identical images" in texts(result, "warning")
    assert [(result.looks[a].name, result.looks[b].name) for a, b in across(result, "identical")["train", "test"]] == [
        (pairs[2].name, "again-2")
    ]


def test_a_mirrored_copy_in_another_split_is_an_error(pairs: list[Pair]) -> None:
    mirrored = replace(pairs[0], image=pairs[0].image[:, ::-1].copy(), mask=pairs[0].mask[:, ::-1].copy(), name="m")
    result = run(train=pairs[:32], test=[*pairs[32:], mirrored])
    assert "mirrored or turned copies" in texts(result, "error")
    assert result.conflicts == []  # its mask was mirrored with it


def test_a_quarter_turn_is_one_pair(pairs: list[Pair]) -> None:
    image, mask = (np.rot90(part).copy() for part in (pairs[0].image, pairs[0].mask))
    result = run(train=pairs[:32], test=[*pairs[32:], replace(pairs[0], image=image, mask=mask, name="turned")])
    assert len(result.duplicates.of_kind("mirrored")) == 1
    assert "1 image of train and 1 of test are mirrored or turned copies" in texts(result, "error")


def test_equal_images_with_other_masks_are_conflicts(pairs: list[Pair]) -> None:
    other = replace(pairs[0], mask=np.roll(pairs[0].mask, 40, axis=1), name="other", group="other")
    result = run(train=[*pairs, other])
    assert "with different masks" in texts(result, "warning")


def test_a_mirrored_copy_whose_mask_was_not_mirrored_is_a_conflict() -> None:
    pair = drawn(1, seed=4)[0]
    image = pair.image[:, ::-1].repeat(2, axis=0).repeat(2, axis=1)  # and twice the size
    mask = pair.mask.repeat(2, axis=0).repeat(2, axis=1)
    turned, kept = (replace(pair, image=image, mask=m.copy(), name=n) for n, m in (("t", mask[:, ::-1]), ("k", mask)))
    assert run(a=[pair], b=[turned]).conflicts == []
    found = run(a=[pair], b=[kept]).conflicts
    assert [(one.a, one.b) for one in found] == [(0, 1)]
    mirrored = pair.mask[:, ::-1]
    both, either = int((mirrored & pair.mask).sum()), int((mirrored | pair.mask).sum())
    assert found[0].overlap == pytest.approx(both / either)
    result = run(a=[pair], b=[kept])
    assert "One image, two masks." in make_page(result, {"a": Listed([pair]), "b": Listed([kept])}).html()


def test_only_the_copies_inside_a_split_are_named_as_such(pairs: list[Pair]) -> None:
    again = [replace(pairs[1], name=f"again-{k}", group=f"again-{k}") for k in (1, 2)]
    warned = texts(run(train=[*pairs[:32], again[0]], test=[*pairs[32:], again[1]]), "warning")
    assert f"{pairs[1].name} = again-1" in warned
    assert "again-2" not in warned


def test_one_patient_on_both_sides_is_an_error(pairs: list[Pair]) -> None:
    result = run(
        train=[replace(pair, group=f"p{k}") for k, pair in enumerate(pairs[:30])],
        test=[replace(pair, group=f"p{k + 29}") for k, pair in enumerate(pairs[30:])],
    )
    assert "1 group (patients) in both train and test: p29" in texts(result, "error")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("shuffled", lambda masks: [masks[(k * 7 + 5) % len(masks)] for k in range(len(masks))], "paired rightly"),
        ("flipped", lambda masks: [m[::-1].copy() for m in masks], "fits better upside down"),
        ("transposed", lambda masks: [m.T.copy() for m in masks], "fits better transposed"),
    ],
)
def test_masks_of_other_images_or_of_another_orientation_are_errors(
    pairs: list[Pair], name: str, change: Callable[[list[np.ndarray]], list[np.ndarray]], words: str
) -> None:
    masks = change([pair.mask for pair in pairs])
    result = run(train=[replace(pair, mask=mask) for pair, mask in zip(pairs, masks, strict=True)])
    assert words in texts(result, "error"), name


def test_odd_masks_are_told(pairs: list[Pair]) -> None:
    empty = replace(pairs[0], mask=np.zeros_like(pairs[0].mask), name="empty")
    full = replace(pairs[1], mask=np.ones_like(pairs[1].mask), name="full")
    speck = pairs[2].mask.copy()
    speck[-1, :3] = 1
    result = run(train=[*pairs[3:], empty, full, replace(pairs[2], mask=speck, name="speck")])
    assert "1 mask all lesion, without background: full" in texts(result, "error")
    assert "1 speck of under 10 pixels in 1 mask: speck" in texts(result, "warning")
    assert "1 of 48 masks are empty: empty" in texts(result, "note")
    assert "the image cuts a lesion" in texts(result, "note")
    every = run(train=[replace(pair, mask=np.zeros_like(pair.mask)) for pair in pairs[:5]])
    assert "every mask is empty" in texts(every, "error")


def test_masks_alone_are_followed_to_the_latents() -> None:
    small = np.zeros((128, 128), dtype=np.uint8)
    small[11:16, 11:14] = 1  # between the centres of 16×16 cells: lost
    large = np.zeros((128, 128), dtype=np.uint8)
    large[20:90, 20:90] = 1
    alone = [Pair(np.zeros((128, 128, 0), np.uint8), m, n, n) for n, m in (("small", small), ("large", large))]
    result = run(masks=alone)
    nearest, touching = result.splits[0].weights
    assert (nearest.lost, touching.lost) == (0.5, 0.0)
    assert "1 mask with a lesion, but with none left on latents of 8²" in texts(result, "warning")
    page = make_page(result, {"masks": Listed(alone)}).html()
    assert "1 mask has a lesion that vanishes" in page
    assert "alt='small'" in page


def test_a_pair_that_cannot_be_read_is_a_problem_and_not_the_end(pairs: list[Pair]) -> None:
    class Torn(Listed):
        def read(self, index: int) -> Pair:
            if index == 3:
                raise UserError("scan-3.png: not readable")
            return super().read(index)

    result = audit({"train": Torn(pairs[:30])}, sizes=(64,), progress=False)
    assert len(result.looks) == 29
    assert "1 problem with files, first: scan-3.png: not readable" in texts(result, "error")


def test_workers_change_nothing(pairs: list[Pair]) -> None:
    source: dict[str, Source] = {"train": Listed(pairs[:12])}
    one, two = (as_dict(audit(source, sizes=(64,), workers=w, progress=False)) for w in (1, 3))
    assert one == two


def test_lesions_are_put_through_an_autoencoder(pairs: list[Pair]) -> None:
    source = {"train": Listed(pairs[:10])}

    def blank(images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(2, 3), keepdim=True).expand_as(images)

    for vae, contrast, gone in ((torch.clone, 1.0, 0.0), (blank, 0.0, 1.0)):
        result = audit(source, sizes=(64,), vae=vae, vae_images=6, progress=False)
        seen = result.splits[0].fading
        assert seen is not None
        assert seen.images == 6
        assert seen.bins[-1].contrast == pytest.approx(contrast, abs=1e-4)
        assert seen.bins[-1].gone == gone
    assert "of the contrast kept" in make_page(result, source, vae=blank).html()
    with pytest.raises(UserError, match="the autoencoder made"):
        audit(source, sizes=(64,), vae=lambda images: images[..., ::2, ::2], progress=False)


def test_tables_and_page_say_the_same(pairs: list[Pair]) -> None:
    result = run(train=pairs[:24], test=pairs[24:])
    page = make_page(result, {"train": Listed(pairs[:24]), "test": Listed(pairs[24:])}).html()
    for table in tables(result):
        assert table.title in as_text(table)
        assert all(len(row) == len(table.head) for row in table.rows)
        assert table.head[0] in as_markdown(table)
    for title in ("Duplicates and leaks", "Will this lesion survive?", "What LAW will do with these masks"):
        assert title in page
    assert page.count("<svg") == 3


def test_the_record_is_readable_json_with_short_lists(pairs: list[Pair]) -> None:
    again = [replace(pair, name=f"again [ {k} ]") for k, pair in enumerate(pairs[:5])]
    record = as_dict(run(train=pairs[:24], test=again), listed=2)
    assert record["splits"]["train"]["pairs"] == 24
    found = record["duplicates"]["across"]["identical"]["train and test"]
    assert found["images"] == [5, 5]
    assert found["first"][1] == [f"train/{pairs[1].name}", "test/again [ 1 ]"]
    assert len(found["first"]) == 2
    text = as_json({**record, "share": 1 / 3, "unknown": float("nan"), "edges": (0.0, 1.0)})
    back = json.loads(text)
    assert back["duplicates"]["across"]["identical"]["train and test"] == found
    assert (back["share"], back["unknown"], back["edges"]) == (0.3333, None, [0.0, 1.0])
    assert '"edges": [0.0, 1.0]' in text


def test_nothing_to_audit_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match="no split"):
        audit({})
    with pytest.raises(UserError, match="at least 1"):
        audit({"train": PhantomSource(2, size=32)}, sizes=())


def test_sizes_at_which_nothing_shrinks_take_no_row_and_few_lesions_no_bar(pairs: list[Pair]) -> None:
    large = np.zeros((96, 96), dtype=np.uint8)
    large[16:80, 16:80] = 1
    result = run(train=[replace(pair, mask=large) for pair in pairs[:4]])
    table = next(one for one in tables(result) if one.title.startswith("Survival"))
    assert [row[0] for row in table.rows] == ["lesions"]
    assert "No lesion loses as much at 64 px (nearest), 64 px (area), latents 8 (of 64 px) (nearest)" in table.caption
    assert survival_chart(result) is None
