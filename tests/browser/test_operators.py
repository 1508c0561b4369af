"""Operators, memory and modules in the tab, on a recording that has some of what they need."""

import re
from collections.abc import Callable

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from browser.tab import Tab

pytestmark = pytest.mark.browser


def test_operators_are_told_split_and_searched(tab: Tab) -> None:
    tab.open(run="resnet18_eager", panel="operators")
    tab.wait_text("h1", "of host time")
    rows = {row[0]: row for row in tab.rows("Operators")}
    tab.click("[role='tab']", "By input shape")
    tab.wait(lambda: any(row[1].startswith("[[") for row in tab.rows("Operators")), "rows by shape")
    assert len(rows) > 10 and "aten::cudnn_convolution" in rows
    tab.click("[role='tab']", "By call site")
    tab.wait_text("[role='note']", "with_stack=True")


def test_modules_come_from_stacks_and_inside_of_compiled_code_from_the_graph(tab: Tab) -> None:
    tab.open(run="breaks", panel="your_code", section="modules")
    tab.wait_text("main p", "14 modules")
    names = [row[0].strip() for row in tab.rows("Modules")]
    assert names[:4] == ["OptimizedModule_0", "Breaks_0", "m3", "m3.2"]


def test_memory_says_how_to_record_it(tab: Tab) -> None:
    tab.open(run="breaks", panel="memory")
    tab.wait_text("h1", "Memory was not recorded")
    tab.wait_text("[role='note']", "profile_memory=True")


def test_memory_over_time_and_by_owner(add_recording: Callable[[str], str], tab: Tab) -> None:
    tab.open(run=add_recording("key_averages"), panel="memory", worker="key_averages_eager_shapes")
    tab.wait_text("h1", "GPU 0 peaked at 95.0 MB")
    tab.wait_text("h1", "75.0 MB of that was allocated before the recording began")
    assert tab.rows("Owners of memory")[0][0] == "aten::addmm"
    tab.wait_count("svg path.allocated", 1)  # what the CPU holds needs no curve


def allocations(tab: Tab) -> int:
    return int(tab.one("table[aria-label='Allocations']").get_attribute("aria-rowcount") or 0) - 1


def test_memory_of_a_stretch_that_is_dragged_over(add_recording: Callable[[str], str], tab: Tab) -> None:
    tab.open(run=add_recording("key_averages"), panel="memory", worker="key_averages_eager_shapes")
    everything = allocations(tab)
    ActionChains(tab.driver).drag_and_drop_by_offset(tab.one("figure svg"), 150, 0).perform()
    tab.wait_address("stretch=")
    tab.wait(lambda: 0 < allocations(tab) < everything, "the allocations of the stretch")
    stretch = re.search(r"stretch=(\d+)(?:,|%2C)(\d+)", tab.address())
    assert stretch and int(stretch[1]) < int(stretch[2])
    tab.click("main a", "Show on timeline")
    assert {f"p.torch_compile.{end}" for end in (f"from={stretch[1]}", f"to={stretch[2]}")} <= {
        *tab.address().split("&")
    }
