"""The demo's story, on a few tiny images: it ends in a page, and started again it has nothing left to train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from laworder.cli import main
from laworder.demo.page import bigger_is_easier, halves
from laworder.demo.story import story

WORDS = ["demo", "--images=40", "--steps=4", "--epochs=2"]


@pytest.mark.slow
def test_the_demo_ends_in_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    page = (tmp_path / "demo" / "report.html").read_text()
    assert out.rstrip().endswith(str(tmp_path / "demo" / "report.html"))
    for said in (
        "drawn (phantom) images",
        "The control is ignored",
        "mask recovery, Dice",
        "Fréchet distance",
        "real and synthetic images",
        "LAW at its start",
        "diffusion under law",
        "Not a medical device",
    ):
        assert said in page
    assert main([*WORDS, "--out", str(tmp_path / "demo")]) == 0
    assert "nothing to train" in capsys.readouterr().err
    assert (tmp_path / "demo" / "report.html").read_text() == page


def test_rivals_differ_in_nothing_else() -> None:
    made = story(images=40, steps=10, epochs=4, seed=3)
    uniform, law = dict(made.uniform.settings), dict(made.law.settings)
    assert {key for key in law if law[key] != uniform[key]} == {"objective"}
    alone, both = dict(made.judge.settings), dict(made.helped.settings)
    assert {key for key in both if both[key] != alone[key]} <= {
        "data",
        "split",
        "epochs",
        "optimiser.warmup",
        "validate_every",
    }
    assert alone["epochs"] == 2 * both["epochs"]
    assert len({job.label for job in made.jobs}) == len(made.jobs)


def test_sizes_are_compared_in_words() -> None:
    area = torch.tensor([0.3, 0.01, 0.2, 0.02])
    assert halves(torch.tensor([0.9, 0.1, 0.7, 0.3]), area) == pytest.approx((0.2, 0.8))
    said = bigger_is_easier(
        {"x": (torch.tensor([0.9, 0.1, 0.7, 0.3]), area), "y": (torch.tensor([0, 1.0, 0, 1]), area)}
    )
    assert said.startswith("For x, large lesions are easier than small ones (Dice 0.80 against 0.20); for y, large ")
    assert "for y, large lesions are not easier than small ones (Dice 0.00 against 1.00)" in said
