"""What if, in the tab: fixes are ticked, the time and the picture follow, and the address keeps it."""

import re
from collections.abc import Callable

import pytest

from browser.tab import Tab
from traces import Event, slice_

pytestmark = pytest.mark.browser

FIXES = "[aria-label='Fixes'] li"
GRAPHS = "Launching the 2 compiled graphs"


def ticked(tab: Tab) -> list[str]:
    return [text.split("\n")[0] for text in tab.texts(f"{FIXES}:has(:checked)")]


def width(tab: Tab, picture: str) -> float:
    """Of the bar with this name, in pixels."""
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().width"
    return float(tab.until(script, picture, f"figure[aria-label='{picture}'] .stack"))


def test_ticks_change_the_time_and_the_picture_and_stay_in_the_address(tab: Tab) -> None:
    tab.open(run="resnet18")
    tab.click("nav a", "What if")
    tab.wait_text("h1", "A step takes 13.0 ms on the host’s clock. Tick what to mend.")
    assert not tab.all("figure[aria-label='After: the host']")
    tab.click(f"{FIXES} label", GRAPHS)
    tab.wait_text("h1", "with 1 fix")
    one = tab.text("h1")
    assert re.fullmatch(
        r"Step 13\.0 ms on the host’s clock → about \d\.\d ms \(\d\.\d–\d\.\d\) with 1 fix\.", one
    )
    tab.wait_text("[aria-label='Fixes']", 'torch.compile(model, mode="reduce-overhead")')
    assert 0 < width(tab, "After: the host") < width(tab, "Now: the host") / 3
    assert width(tab, "After: the host") == pytest.approx(width(tab, "After: GPU 0"), abs=1)
    tab.click(f"{FIXES} label", "eager operators")
    tab.wait_text("h1", "with 2 fixes")
    two = tab.text("h1")
    tab.again()
    tab.wait_text("h1", two)
    assert len(ticked(tab)) == 2
    tab.click(f"{FIXES} label", "eager operators")
    tab.wait_text("h1", one)
    tab.click("a", "Untick all")
    tab.wait_text("h1", "Tick what to mend.")


def test_a_finding_opens_it_with_its_fix_ticked(tab: Tab) -> None:
    tab.open(run="resnet18", panel="findings")
    first = "[aria-label='Findings'] li:first-child"
    tab.wait_text(first, GRAPHS)
    assert re.search(r"^Step 13\.0 ms → \d\.\d ms \(\d\.\d–\d\.\d ms\)$", tab.text(first), re.MULTILINE)
    tab.click(f"{first} a", "What if")
    tab.wait_text("h1", "with 1 fix")
    assert [row.startswith(GRAPHS) for row in ticked(tab)] == [True]


def test_a_fix_of_another_recording_is_told_and_the_next_tick_drops_it(tab: Tab) -> None:
    tab.open(run="resnet18", panel="findings", fixes="no such fix")
    tab.wait_text("[role=note]", "1 fix of the address is not known here: no such fix.")
    tab.click(f"{FIXES} label", GRAPHS)
    tab.wait_text("h1", "with 1 fix")
    tab.gone("main [role=note]")


def test_an_eager_run_has_its_what_ifs(tab: Tab) -> None:
    tab.open(run="resnet18_eager", panel="findings")
    tab.wait_text("h1", "A step takes 13.6 ms on the host’s clock.")


def test_where_nothing_can_be_predicted_it_says_why(add_run: Callable[[list[Event]], str], tab: Tab) -> None:
    tab.open(run=add_run([slice_("aten::mm", 0, 5)]), panel="findings")
    tab.wait_text("h1", "Nothing is predicted.")
    tab.wait_text("main", "No work of a GPU was recorded")
    tab.wait_text("main", "ProfilerActivity.CUDA")
