"""Findings, in the tab: fixes are selected, the time and the picture follow, and the address keeps it."""

import re
from collections.abc import Callable

import pytest

from browser.tab import Tab
from traces import Event, in_steps, slice_

pytestmark = pytest.mark.browser

BOXES = "[aria-label='Findings'] label:has(input), [aria-label='Smaller fixes'] label"
GRAPHS = "The GPU waits for kernel launches"


def ticked(tab: Tab) -> list[str]:
    return tab.texts("li:has(:checked) label")


def width(tab: Tab, picture: str) -> float:
    """Of the bar with this name, in pixels."""
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().width"
    return float(tab.until(script, picture, f"figure[aria-label='{picture}'] .stack"))


def test_ticks_change_the_time_and_the_picture_and_stay_in_the_address(tab: Tab) -> None:
    tab.open(run="resnet18", panel="findings")
    tab.wait_text("h1", "A step takes 13.0 ms on the host’s clock. Select fixes")
    assert not tab.all("figure[aria-label='After: the host']")
    tab.click(BOXES, GRAPHS)
    tab.wait_text("h1", "With 1 fix")
    one = tab.text("h1")
    assert re.fullmatch(
        r"With 1 fix, a step takes about \d\.\d ms \(\d\.\d–\d\.\d\) instead of 13\.0 ms\.", one
    )
    assert 0 < width(tab, "After: the host") < width(tab, "Now: the host") / 3
    assert width(tab, "After: the host") == pytest.approx(width(tab, "After: GPU 0"), abs=1)
    tab.click(BOXES, "eager operators")
    tab.wait_text("h1", "With 2 fixes")
    two = tab.text("h1")
    tab.again()
    tab.wait_text("h1", two)
    assert len(ticked(tab)) == 2
    tab.click(BOXES, "eager operators")
    tab.wait_text("h1", one)
    tab.click("a", "Clear the selection")
    tab.wait_text("h1", "Select fixes")


def test_a_fix_of_another_recording_is_named_and_the_next_selection_drops_it(tab: Tab) -> None:
    tab.open(run="resnet18", panel="findings", fixes="no such fix")
    tab.wait_text("[role=note]", "no such fix")
    tab.click(BOXES, GRAPHS)
    tab.wait_text("h1", "With 1 fix")
    tab.gone("main [role=note]")


def test_a_trace_of_the_cpu_shows_its_findings_and_one_line(
    add_run: Callable[[list[Event]], str], tab: Tab
) -> None:
    tab.open(run=add_run(in_steps(slice_("aten::mm", 0, 5), every=10)), panel="findings")
    tab.wait_text("main p", "this trace has no GPU work")
    assert not tab.all("[aria-label='Findings'] input") and not tab.all("main [name=what_if]")
