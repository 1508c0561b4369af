"""Source and Python in the tab: lines and functions with what they take, and where each leads."""

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser


def lines(tab: Tab) -> list[str]:
    return [row[0] for row in tab.rows("Lines")]


def test_the_hottest_line_is_named_and_the_files_can_be_read(tab: Tab) -> None:
    tab.open(run="resnet18", panel="your_code")
    tab.wait_text("h1", "resnet.py:96 takes 481 µs a step, 29.1 % of kernel time")
    first = tab.rows("Lines")[0]
    assert first[0] == "resnet.py:96" and "out = self.conv2(out)" in first
    tab.go(run="resnet18", panel="your_code", **{"sort.your_code": "line"})
    tab.wait(lambda: lines(tab)[:3] == ["resnet.py:92", "resnet.py:93", "resnet.py:94"], "the file's order")


def test_a_line_leads_to_its_kernels_and_to_those_that_share_them(tab: Tab) -> None:
    tab.open(run="resnet18", panel="your_code")
    tab.click("table[aria-label='Lines'] td", "resnet.py:93")
    tab.click("aside a", "resnet.py:94")
    tab.wait_text("aside", "out = self.relu(out)")
    tab.click("aside a", "triton_")
    tab.wait_text("aside", "In this span")
    tab.wait_address("panel=kernels")


def test_breaks_and_guards_stand_at_their_lines(tab: Tab) -> None:
    tab.open(run="breaks", panel="your_code")
    tab.wait_text("h1", "a step")
    marks = {row[0]: row[-1] for row in tab.rows("Lines")}
    assert marks["capture.py:29"] == "1 break, 84 guards"
    tab.click("table[aria-label='Lines'] td", "capture.py:29")
    tab.click("aside a", "Graph break")
    tab.wait_text("aside", "Direct cost: measured between the graphs")


def test_addresses_of_before_lead_on(tab: Tab) -> None:
    tab.load(run="breaks", panel="kernels", by="line")
    tab.wait_text("h1", "of kernel time")
    tab.load(run="breaks", panel="operators", view="python")
    tab.rows("Python functions")
    tab.wait_address("panel=python")


def test_the_costliest_function_of_yours_is_named_and_leads_to_its_lines(tab: Tab) -> None:
    tab.open(run="breaks", panel="your_code", section="functions")
    tab.wait_text("h1", "costs most of your functions")
    tab.one("canvas")
    assert tab.text("h1").startswith("f (")
    tab.click("table[aria-label='Python functions'] td", "prof_steps")
    tab.click("aside a", "Among the lines of your program")
    tab.wait(lambda: lines(tab) == ["capture.py:53"], "its line")


def test_without_stacks_the_argument_that_records_them_is_shown(tab: Tab) -> None:
    tab.open(run="resnet18_eager", panel="your_code", section="functions")
    tab.wait_text("[role='note']", "with_stack=True")
    tab.go(run="resnet18_eager", panel="your_code")
    tab.wait_text("h1", "Nothing tells a line of your program")
