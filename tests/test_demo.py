"""The demo's story, on a few tiny images: it ends in a page, and started again it has nothing left to train."""

from __future__ import annotations

from pathlib import Path

import pytest

from laworder.cli import main
from laworder.demo import bigger_is_easier

WORDS = ["demo", "--images=20", "--size=32", "--epochs=1"]


@pytest.mark.slow
def test_the_demo_ends_in_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert out.rstrip().endswith(str(tmp_path / "demo" / "report.html"))
    for said in (
        "drawn (phantom) images",
        "ORDER {0,1}",
        "42,265",
        "26,307",
        "LAW at its start",
        "Not a medical device",
    ):
        assert said in page
    assert main([*WORDS, "--out", str(tmp_path / "demo")]) == 0
    assert "nothing to train" in capsys.readouterr().err
    assert (tmp_path / "demo" / "report.html").read_text() == page


def test_sizes_are_compared_in_words() -> None:
    def summary(small: float, large: float) -> dict[str, object]:
        row = {"low": 0.0, "high": 0.01, "mean": small}
        return {"dice_by_lesion_size": [row, {"low": 0.1, "high": 1.0, "mean": large}]}

    said = bigger_is_easier({"x": summary(0.2, 0.8), "y": summary(0.5, 0.4)})
    assert "for x, large lesions are easier than small ones (Dice 0.80 above 10 % of the image, 0.20 up to 1 %)" in (
        said[0].lower() + said[1:]
    )
    assert "for y, large lesions are not easier" in said
    assert bigger_is_easier({"x": {"dice_by_lesion_size": []}}) == "Too few images to compare lesion sizes."
