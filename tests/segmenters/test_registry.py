"""The registry: names, cards, settings and refusals."""

from __future__ import annotations

import pytest

import laworder
from laworder.errors import UserError
from laworder.segmenters import card, create, list_models
from laworder.segmenters.profile import count_parameters

NAMES = [
    "egeunet",
    "egeunet_paper",
    "mkunet_b",
    "mkunet_l",
    "mkunet_m",
    "mkunet_s",
    "mkunet_t",
    "order_01",
    "order_0123",
    "order_12",
    "order_23",
    "order_backbone",
    "order_cbam",
    "order_se",
    "pranet",
    "unet",
]


def test_the_registered_names() -> None:
    assert list_models() == NAMES
    assert list_models("order_?2*") == ["order_12"]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("order_backbone", 26_307),
        ("order_01", 42_265),
        ("order_12", 35_793),
        ("order_23", 31_011),
        ("order_0123", 46_969),
        ("order_se", 26_467),
        ("order_cbam", 26_663),
        ("mkunet_t", 27_384),
        ("mkunet_s", 93_050),
        ("mkunet_b", 315_566),
        ("mkunet_m", 1_150_166),
        ("mkunet_l", 3_758_118),
        ("egeunet", 53_374),
        ("egeunet_paper", 514_702),
        ("unet", 31_037_633),
        ("pranet", 30_498_319),
    ],
)
def test_parameters(name: str, params: int) -> None:
    assert count_parameters(create(name)) == params


def test_mkunet_is_the_backbone_with_gates_and_heads_and_without_the_bias() -> None:
    model = create("mkunet_t")
    assert sum(count_parameters(skip) for skip in model.skips) == 1_130
    assert count_parameters(model.side_heads) == 31
    assert count_parameters(model) == 26_307 - (4 + 8 + 16 + 24 + 32) + 1_130 + 31


@pytest.mark.parametrize("name", NAMES)
def test_cards_are_filled(name: str) -> None:
    about = card(name)
    assert about.name == name
    for text in (about.summary, about.paper, about.licence, about.differs):
        assert text.strip()
        assert "\n" not in text


def test_names_give_defaults_and_settings_override_them() -> None:
    assert count_parameters(create("order_12", stages=(0, 1))) == 42_265
    assert create("order_12", heads=4).stages == (1, 2)
    origin = create("order_01", heads=4).origin
    assert origin is not None
    assert (origin.name, origin.settings) == ("order_01", {"heads": 4})


def test_the_public_door() -> None:
    assert laworder.create is create
    assert laworder.list_models is list_models
    assert type(create("order_01")) is laworder.ORDER


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="unknown model 'order01'; did you mean 'order_01'"):
        create("order01")
    with pytest.raises(UserError, match="unknown model 'unett'; did you mean 'unet'"):
        card("unett")
    with pytest.raises(UserError, match="model 'order_01' has no setting 'in_chanels'; did you mean 'in_channels'"):
        create("order_01", in_chanels=1)
    with pytest.raises(UserError, match="kind must be 'se' or 'cbam', not 'see'; did you mean 'se'"):
        create("order_se", kind="see")
    with pytest.raises(UserError, match=r"widths must be even numbers \(the gates halve them\), not \[4, 5, 6\]"):
        create("mkunet_t", widths=(4, 5, 6))
    with pytest.raises(UserError, match=r"stages: 7 is no skip stage; allowed are any of \[0, 1, 2, 3\]"):
        create("order_cbam", stages=(7,))
