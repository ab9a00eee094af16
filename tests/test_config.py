"""Typed settings: every value is checked, whatever it comes from, and a wrong one is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from laworder.config import build, flatten, leaves, option, to_dict
from laworder.config import group as nested
from laworder.errors import UserError
from laworder.presets import annotated_yaml, read_yaml


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = option(0.5, "how often", minimum=0, maximum=1)
    widths: tuple[int, ...] = option((4, 8), "channels", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: Path = option(meaning="where", positional=True)
    steps: int = option(10, "how long", unit="steps", minimum=1)
    lr: float = option(1e-3, "how fast", above=0)
    mode: Literal["paper", "best"] = option("paper", "which")
    resume: bool = option(True, "go on")
    limit: int | None = option(None, "at most", minimum=1)
    inner: Inner = nested(Inner, "more")
    pair: tuple[float, float] = option((0.1, 0.2), "two")


def test_defaults_are_kept_and_values_are_converted() -> None:
    config = build(Settings, {"data": "x", "lr": "3e-3", "inner.rate": "1", "inner.widths": "1,2,3", "resume": "no"})
    assert config == Settings(data=Path("x"), lr=3e-3, inner=Inner(rate=1.0, widths=(1, 2, 3)), resume=False)
    assert isinstance(config.inner.rate, float)


def test_yaml_gives_the_config_back() -> None:
    config = Settings(data=Path("a b/c"), steps=3, limit=4, inner=Inner(rate=0.25))
    text = annotated_yaml(config)
    assert build(Settings, flatten(yaml.safe_load(text))) == config
    assert "steps: 3  # how long (>= 1, steps)" in text


def test_a_plain_dict_gives_the_config_back() -> None:
    config = Settings(data=Path("a"), pair=(1.0, 2.0))
    assert build(Settings, flatten(to_dict(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "missing setting: data"),
        ({"data": "x", "step": "3"}, "unknown setting 'step'; did you mean 'steps'?"),
        ({"data": "x", "steps": "three"}, "steps: expected a whole number, not 'three'"),
        ({"data": "x", "steps": "0"}, "steps: must be >= 1, not 0"),
        ({"data": "x", "steps": 1.5}, "steps: expected a whole number, not 1.5"),
        ({"data": "x", "steps": True}, "steps: expected a whole number, not True"),
        ({"data": "x", "lr": "0"}, "lr: must be > 0, not 0.0"),
        ({"data": "x", "lr": "nan"}, "lr: must be > 0, not nan"),
        ({"data": "x", "lr": [1]}, "lr: expected a number, not [1]"),
        ({"data": "x", "mode": "papr"}, "mode: unknown choice 'papr'; did you mean 'paper'?"),
        ({"data": "x", "resume": "maybe"}, "resume: expected true or false, not 'maybe'"),
        ({"data": "x", "limit": "0"}, "limit: must be >= 1, not 0"),
        ({"data": "x", "inner.rate": "2"}, "inner.rate: must be >= 0 and <= 1, not 2.0"),
        ({"data": "x", "inner.widths": "4,0"}, "inner.widths: must be >= 1, not 0"),
        ({"data": "x", "inner.widths": 4}, "inner.widths: expected values separated by commas, not 4"),
        ({"data": "x", "pair": "1"}, "pair: expected 2 values separated by commas, not 1"),
        ({"data": ""}, "data: expected a path, not ''"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Settings, values)
    assert str(caught.value) == message


@given(st.dictionaries(st.sampled_from([leaf.path for leaf in leaves(Settings)]), st.one_of(st.text(), st.floats())))
def test_any_value_is_taken_or_refused_with_words(values: dict[str, object]) -> None:
    try:
        config = build(Settings, {"data": "x", **values})
    except UserError as error:
        assert any(path in str(error) for path in values)  # noqa: PT017 - either outcome is right
    else:
        assert config.steps >= 1


def test_groups_keep_their_own_defaults() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Outer:
        inner: Inner = nested(Inner, "more")

    assert build(Outer, {"inner.rate": 0.1}).inner == Inner(rate=0.1)
    assert [leaf.path for leaf in leaves(Outer)] == ["inner.rate", "inner.widths"]


@pytest.mark.parametrize(
    ("content", "message"),
    [("- a\n- b\n", "must hold `key: value` lines"), ("a: [", "cannot be read"), (b"\xff\xfe\x00", "cannot be read")],
)
def test_damaged_config_files_are_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(path)
    assert "c.yaml" in str(caught.value)


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("# nothing yet\n")
    assert read_yaml(tmp_path / "c.yaml") == {}


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml does not exist"):
        read_yaml(tmp_path / "nowhere.yaml")
