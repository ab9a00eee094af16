"""Planted copies are found and named, fresh pictures are not accused, and the page shows who looks like whom."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tiny import Listed
from laworder.data.audit.duplicates import COPY
from laworder.data.pairs import Pair, Source
from laworder.data.sources.phantom import PhantomSource
from laworder.evaluation.context import Context
from laworder.evaluation.copying import Copying, compare_sources, kin, laid_over, measure, pictures_of
from laworder.evaluation.features import FeatureStore
from laworder.evaluation.section import Section
from laworder.metrics.copying import Match
from laworder.report import Page

Change = Callable[[Image.Image], Image.Image]


def phantoms(count: int, seed: int) -> list[Pair]:
    source = PhantomSource(count, size=96, seed=seed, distractor=0.3)
    return [source.read(i) for i in range(count)]


def reencoded(image: Image.Image) -> Image.Image:
    """Half the size, a poor JPEG, brighter."""
    buffer = io.BytesIO()
    image.resize((48, 48), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=40)
    return Image.open(buffer).point(lambda v: min(255, int(v * 1.15)))


PLANTED: dict[str, Change] = {
    "copy": lambda image: image,
    "flipped": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "turned": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "reencoded": reencoded,
    "tilted": lambda image: image.rotate(5, Image.Resampling.BILINEAR),
}


@pytest.fixture(scope="module")
def train() -> list[Pair]:
    return phantoms(120, seed=0)


@pytest.fixture(scope="module")
def planted(train: list[Pair]) -> list[Pair]:
    """Fresh pictures, and among them one changed training image of each kind."""
    made = phantoms(40, seed=5)
    for k, (name, change) in enumerate(PLANTED.items()):
        pixels = np.asarray(change(Image.fromarray(train[20 * k].image)).convert("RGB"))
        made.append(Pair(pixels, train[20 * k].mask, name, name))
    return made


def context(generated: Source, real: Source, out: Path) -> Context:
    cpu = torch.device("cpu")
    return Context(
        generated=generated, real=real, out=out, device=cpu, features=FeatureStore(out / "cache", device=cpu)
    )


def test_planted_copies_are_found_and_their_originals_named(
    train: list[Pair], planted: list[Pair], tmp_path: Path
) -> None:
    section = measure(context(Listed(planted), Listed(train), tmp_path))
    values = json.loads(json.dumps(section.values))
    suspected = {pair["generated"]: pair["training"] for pair in values["closest"] if pair["suspected"]}
    assert suspected == {name: train[20 * k].name for k, name in enumerate(PLANTED)}
    assert values["suspected"] == len(PLANTED)
    by_name = {pair["generated"]: pair for pair in values["closest"]}
    assert by_name["flipped"]["orientation"] == "left to right"
    assert by_name["turned"]["orientation"] == "quarter turn right"
    assert abs(by_name["tilted"]["angle"]) == pytest.approx(5, abs=1.3)
    assert section.rows[0].value == pytest.approx(5 / 45)
    assert "5 of 45" in section.words[0]
    page_shows_pairs(section, values)


def page_shows_pairs(section: Section, values: dict[str, object]) -> None:
    page = Page(title="copies", summary=list(section.words))
    section.draw(page)
    html = page.html()
    assert html.count("<img ") == 30  # ten pairs of three pictures
    assert "flipped and " in html
    assert f"{values['threshold']:.2f}" in html


@pytest.mark.slow
@pytest.mark.parametrize("modality", ["colon", "mr", "ct"])
def test_fresh_phantoms_are_not_accused(modality: str) -> None:
    """200 pictures of other patients raise at most 2 alarms."""
    known = PhantomSource(160, size=96, seed=0, modality=modality, distractor=0.3)
    fresh = PhantomSource(200, size=96, seed=9, modality=modality, distractor=0.3)
    found = compare_sources(fresh, known)
    assert len(found.suspected) <= 2
    assert len(found.found) == 200


def test_neighbouring_frames_do_not_raise_the_bar(train: list[Pair]) -> None:
    """Frames of one video under names that do not say so: they are kin, and copies are still found."""
    frames = [
        replace(pair, image=np.roll(pair.image, 2, axis=1), name=f"{pair.name}-next", group=f"{pair.group}-next-{i}")
        for i, pair in enumerate(train[:60])
    ]
    loose = [replace(pair, group=pair.name) for pair in train]
    _, prints = pictures_of(Listed(loose + frames))
    same = kin([pair.group for pair in loose + frames], prints)
    assert bool(same[torch.arange(60), torch.arange(120, 180)].all())
    found = compare_sources(Listed(train[:4]), Listed(loose + frames))
    assert len(found.suspected) == 4


def test_training_images_of_one_patient_set_no_threshold(train: list[Pair], tmp_path: Path) -> None:
    few = measure(context(Listed(train[:5]), Listed(train[5:20]), tmp_path))
    assert few.values["measured"] is False
    assert "at least 20 training images, not 15" in few.words[0]
    alone = Listed([replace(pair, group="one") for pair in train[:30]])
    lonely = measure(context(Listed(train[:5]), alone, tmp_path))
    assert lonely.values["measured"] is False
    assert "only 0 training images have another patient's" in lonely.words[0]


def test_a_threshold_at_its_ceiling_is_not_called_chance(train: list[Pair], tmp_path: Path) -> None:
    """Pairs of pictures that nobody knew to be of one patient: tilted, which the audit does not look for."""
    tilted = [
        Pair(np.asarray(Image.fromarray(p.image).rotate(5, Image.Resampling.BILINEAR)), p.mask, f"t{i}", f"t{i}")
        for i, p in enumerate(train[:30])
    ]
    section = measure(context(Listed(phantoms(3, seed=5)), Listed(train[:30] + tilted), tmp_path))
    assert section.values["threshold"] == COPY
    assert section.values["false_alarm_rate"] is None
    assert section.values["training_above_threshold"] > 5
    assert f"which {section.values['training_above_threshold']} of 60 training images pass" in section.words[0]
    assert "by chance" not in section.words[0]


def test_a_blank_generated_image_is_counted_and_not_accused(train: list[Pair], tmp_path: Path) -> None:
    blank = Pair(np.full((96, 96, 3), 7, dtype=np.uint8), np.zeros((96, 96), dtype=np.uint8), "blank", "blank")
    section = measure(context(Listed([blank, *phantoms(3, seed=4)]), Listed(train), tmp_path))
    assert section.values["without_features"] == 1
    assert section.values["suspected"] == 0


def test_pictures_are_laid_over_their_twins() -> None:
    image = phantoms(1, seed=3)[0].image
    for name, orientation in (("LEFT_RIGHT", "left to right"), ("TOP_BOTTOM", "upside down")):
        flipped = np.asarray(Image.fromarray(image).transpose(Image.Transpose[f"FLIP_{name}"]))
        assert np.array_equal(laid_over(flipped, Match(0, 1.0, orientation)), image)
    tilted = np.asarray(Image.fromarray(image).rotate(10, Image.Resampling.BILINEAR))
    middle = (slice(24, 72), slice(24, 72))
    apart = [
        np.abs(laid_over(tilted, Match(0, 1.0, "upright", 1.0, angle))[middle].astype(int) - image[middle]).mean()
        for angle in (10.0, 0.0, -10.0)
    ]
    assert min(apart) == apart[0] or min(apart) == apart[2]
    assert min(apart) < 0.5 * apart[1]


def test_the_angle_of_a_match_lays_the_picture_over(train: list[Pair]) -> None:
    tilted = [replace(pair, image=np.asarray(Image.fromarray(pair.image).rotate(10))) for pair in train[:3]]
    found: Copying = compare_sources(Listed(tilted), Listed(train))
    middle = (slice(24, 72), slice(24, 72))
    for k, match in enumerate(found.found):
        assert match.index == k
        over = np.abs(laid_over(tilted[k].image, match)[middle].astype(int) - train[k].image[middle]).mean()
        assert over < np.abs(tilted[k].image[middle].astype(int) - train[k].image[middle]).mean()
