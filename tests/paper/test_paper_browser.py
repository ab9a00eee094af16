"""The study's page in a real browser. `tools/browser_env.py --install` brings what these need; CI calls it first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pretend
import pytest
from browser import Browser

from laworder.paper.commands.report import study_page

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import browser_env

pytestmark = pytest.mark.slow
AXE = """
const done = axe.run(document, {resultTypes: ["violations"]});
return done.then(found => found.violations
  .filter(fault => ["serious", "critical"].includes(fault.impact))
  .map(fault => fault.id + ": " + fault.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(" | ")));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    target = folder / "report.html"
    target.write_text(study_page(pretend.study(folder)).html(), encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    lacking = browser_env.missing()
    if lacking:
        pytest.skip(f"not here: {', '.join(lacking)}; `python tools/browser_env.py --install` gets them")
    chromium, driver = browser_env.chromium(), browser_env.driver()
    assert chromium is not None
    assert driver is not None
    with Browser(chromium, driver) as started:
        yield started


def opacity(browser: Browser) -> float:
    return float(browser.run("return getComputedStyle(document.querySelector('.mask')).opacity"))


def test_the_slider_moves_the_masks_and_keys_move_the_slider(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert opacity(browser) == 0.5
    browser.run("document.querySelector('.overlay input').focus()")
    browser.press("End", 35)
    assert opacity(browser) == 1.0
    browser.press("Home", 36)
    assert opacity(browser) == 0.0
    browser.press("ArrowRight", 39)
    assert opacity(browser) == pytest.approx(0.01)
    assert browser.complaints() == []


def test_a_number_opens_what_is_behind_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "return document.querySelector('[popover]:popover-open')?.id ?? null"
    assert browser.run(shown) is None
    browser.run("document.querySelector('button.n').focus()")
    browser.command("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r", windowsVirtualKeyCode=13)
    browser.command("Input.dispatchKeyEvent", type="keyUp", key="Enter", windowsVirtualKeyCode=13)
    assert browser.run(shown) == "recovery-uniform-polyps-dice"
    browser.press("Escape", 27)
    assert browser.run(shown) is None
    # From the number to the manifest of the training behind it.
    browser.run("document.querySelector('button.n').click()")
    browser.run("document.querySelector('[popover]:popover-open a').click()")
    found = browser.run(
        "return [location.hash, document.activeElement.id, document.activeElement.closest('details').open]"
    )
    assert found[0].startswith("#run-")
    assert found[0] == f"#{found[1]}"
    assert found[2] is True
    assert browser.run(shown) is None
    assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(browser: Browser, page: Path, scheme: str) -> None:
    browser.open(page)
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    ink: Any = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (ink == "rgb(255, 255, 255)") == (scheme == "light")
    browser.run(browser_env.AXE.read_text(encoding="utf-8"))
    assert browser.run(AXE) == []
    browser.run("document.querySelector('button.n').click()")  # and once more with a number opened
    assert browser.run(AXE) == []
    assert browser.complaints() == []
    # The judge is awake: a picture without words is a serious fault.
    browser.run("document.querySelector('main').append(new Image())")
    assert [fault.partition(":")[0] for fault in browser.run(AXE)] == ["image-alt"]


OVERFLOW = """
return [...document.querySelectorAll("svg.chart")].flatMap(chart => {
  const whole = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text, rect, line")].map(part => part.getBoundingClientRect())
    .filter(part => part.left < whole.left - 1 || part.right > whole.right + 1 || part.top < whole.top - 1
      || part.bottom > whole.bottom + 1).length ? [chart.getAttribute("aria-label")] : [];
});
"""
LETTERS = """
return [...document.querySelectorAll("svg.chart text")].map(text => {
  const chart = text.ownerSVGElement, scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
  return scale * parseFloat(getComputedStyle(text).fontSize);
});
"""


def test_charts_hold_all_their_words(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("return document.querySelectorAll('svg.chart').length") == 2
    assert browser.run(OVERFLOW) == []
    browser.command("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    try:
        assert browser.run(OVERFLOW) == []
        assert min(browser.run(LETTERS)) >= 10
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")


def test_it_is_readable_on_a_phone_and_on_paper(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.command("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    try:
        wide = browser.run("return document.documentElement.scrollWidth")
        assert wide <= 360, "the page itself never scrolls sideways; wide tables do so by themselves"
        sizes = "return [...document.querySelectorAll('p, li, td')].map(e => parseFloat(getComputedStyle(e).fontSize))"
        assert min(browser.run(sizes)) >= 11
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")
    browser.command("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
        assert browser.run("return getComputedStyle(document.querySelector('.overlay label')).display") == "none"
        printed = browser.command("Page.printToPDF")["data"]
        assert len(printed) > 10_000
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")
