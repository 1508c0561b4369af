"""Source and Python in the tab: lines and functions with what they take, and where each leads."""

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser


def lines(tab: Tab) -> list[str]:
    return [row[0] for row in tab.rows("Lines")]


def test_the_files_can_be_read(tab: Tab) -> None:
    """Which line is the hottest is asked in test_ten_tasks."""
    tab.open(run="resnet18", panel="your_code", **{"sort.your_code": "file"})
    tab.wait(lambda: lines(tab)[:3] == [f"…/resnet.py:{line}" for line in (92, 93, 94)], "the file's order")


def test_a_line_leads_to_its_kernels_and_to_those_that_share_them(tab: Tab) -> None:
    tab.open(run="resnet18", panel="your_code")
    tab.click("table[aria-label='Lines'] td", "resnet.py:93")
    tab.wait_text("aside", "Lines in the same kernels")
    tab.one("aside a[href*='resnet.py:94']")
    tab.click("aside a", "triton_")
    tab.wait_text("aside", "In this span")
    tab.wait_address("panel=kernels")


def test_breaks_and_guards_stand_at_their_lines(tab: Tab) -> None:
    tab.open(run="breaks", panel="your_code")
    tab.wait_text("h1", "of each step")
    marks = {row[0]: row[-1] for row in tab.rows("Lines")}
    assert marks["…/capture.py:29"] == "1" and marks["…/capture.py:30"] == ""
    tab.click("table[aria-label='Lines'] td", "capture.py:29")
    tab.wait_text("aside", "84")
    tab.click("aside a", "Failed to trace builtin operator")
    tab.wait_address("panel=graph_breaks", "row=graph_breaks:")
    tab.wait_text("aside", "Failed to trace builtin operator")


def test_an_address_of_before_leads_on(tab: Tab) -> None:
    tab.load(run="breaks", panel="kernels", by="line")
    tab.wait_text("h1", "of each step")


def test_the_costliest_function_of_yours_is_named_and_leads_to_its_lines(tab: Tab) -> None:
    tab.open(run="breaks", panel="your_code", section="functions")
    tab.wait_text("main p", "is your most expensive function")
    assert tab.text("main p").startswith("f (")
    tab.click("table[aria-label='Functions'] td", "prof_steps")
    tab.click("aside a", "Show in Your code")
    tab.wait(lambda: lines(tab) == ["…/capture.py:53"], "its line")


def test_without_stacks_the_argument_that_records_them_is_shown(tab: Tab) -> None:
    tab.open(run="resnet18_eager", panel="your_code", section="functions")
    tab.wait_text("[role='note']", "with_stack=True")
    tab.go(run="resnet18_eager", panel="your_code")
    tab.wait_text("h1", "No line of your program was recorded")
