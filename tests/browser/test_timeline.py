"""The timeline on real recordings, by mouse and by keyboard, in both themes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab

pytestmark = pytest.mark.browser

CANVAS = "canvas[role='application']"
DRAWER = "section[aria-label='Details']"
COLORS = """
    const canvas = document.querySelector(arguments[0]);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
    const found = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const color = `${data[i]},${data[i + 1]},${data[i + 2]}`;
        found.set(color, (found.get(color) ?? 0) + 1);
    }
    return [...found].filter(([, n]) => n > 200).map(([color]) => color);
"""


def shown(tab: Tab) -> str:
    """What the picture says of itself, once all of it is there."""
    tab.wait(lambda: tab.all(f"{CANVAS}[aria-busy='false']"), "all that is in view")
    described = tab.one(CANVAS).get_attribute("aria-describedby")
    return str(tab.script("return document.getElementById(arguments[0]).textContent", described))


def view(tab: Tab) -> tuple[int, int]:
    """From the address, ns."""
    start, end = (re.search(rf"p\.torch_compile\.{key}=(-?\d+)", tab.address()) for key in ("from", "to"))
    assert start and end, tab.address()
    return int(start[1]), int(end[1])


def moved(tab: Tab, before: str) -> tuple[int, int]:
    tab.wait(lambda: tab.address() != before, "another address")
    return view(tab)


def open_timeline(tab: Tab, query: str = "", **place: str) -> str:
    tab.open(query, run="breaks", panel="timeline", **place)
    tab.wait_text("h1", "slices on")
    return shown(tab)


def test_opens_on_the_first_step_with_its_regions_and_breaks(tab: Tab) -> None:
    text = open_timeline(tab)
    assert "In view: 7.09 ms of" in tab.text("h1") and "ProfilerStep#2" in tab.text("h1")
    assert "Steps: 1 slice (ProfilerStep#2)." in text
    assert "Compiled regions: 9 slices (0/0 forward" in text  # five nested ones and four of the backward
    assert "Graph breaks: 4 marks (capture.py:26, capture.py:27, capture.py:28 …)." in text
    tab.one(CANVAS).send_keys("]")
    tab.wait_text("h1", "ProfilerStep#3")
    assert "Graph breaks: 4 marks" in shown(tab)


def test_keys_move_and_the_address_brings_back(tab: Tab) -> None:
    open_timeline(tab)
    canvas = tab.one(CANVAS)
    address = tab.address()
    canvas.send_keys("w")
    start, end = moved(tab, address)
    assert 0 < end - start < 7_086_660
    address = tab.address()
    canvas.send_keys("d")
    later = moved(tab, address)
    assert later[0] > start and later[1] - later[0] == pytest.approx(end - start, abs=2)
    address = tab.address()
    canvas.send_keys("0")
    everything = moved(tab, address)
    assert everything[0] < 0 < later[0] and everything[1] == 18719112
    tab.driver.back()
    tab.enter()
    tab.wait(lambda: view(tab) == later, "the place before")
    assert "In view:" in tab.text("h1")
    text = shown(tab)
    address = tab.address()
    tab.driver.get("about:blank")
    tab.driver.get(address)
    tab.enter()
    assert shown(tab) == text


def test_a_kernel_leads_to_its_launch_and_back(tab: Tab) -> None:
    open_timeline(tab)
    tab.one("input[aria-label='Search in the timeline']").send_keys("cuLaunchKernel")
    tab.wait_text("[role='toolbar'] [role='status']", "60 found")
    tab.press(Keys.ENTER)
    tab.wait_text(DRAWER, "Launched 1 kernel")
    tab.wait_text("[role='toolbar'] [role='status']", "1 of 60")
    canvas = tab.one(CANVAS)
    canvas.send_keys("l")
    tab.wait_text(DRAWER, "stream 7, GPU 0")
    assert "Triton pointwise" in tab.text(DRAWER) and "grid" in tab.text(DRAWER)
    assert "triton_poi_fused" in str(canvas.get_attribute("aria-label"))
    canvas.send_keys("l")
    tab.wait_text(f"{DRAWER} h2", "cuLaunchKernel")
    canvas.send_keys("n")
    tab.wait_text("[role='toolbar'] [role='status']", "2 of 60")
    canvas.send_keys("m")
    tab.wait_text(DRAWER, "GPU 0 busy")
    canvas.send_keys(Keys.ESCAPE, Keys.ESCAPE)
    tab.wait(lambda: not tab.all(DRAWER), "the drawer to close")


def test_the_mouse_moves_zooms_chooses_and_measures(tab: Tab) -> None:
    open_timeline(tab)
    canvas = tab.one(CANVAS)
    address = tab.address()
    ActionChains(tab.driver).drag_and_drop_by_offset(canvas, -200, 0).perform()
    start, end = moved(tab, address)
    assert start > 317138 and end - start == pytest.approx(7086660, abs=2)
    address = tab.address()
    # Clicked before: the wheel zooms now.
    tab.script("arguments[0].focus({focusVisible: true})", canvas)
    ActionChains(tab.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -100).perform()
    closer = moved(tab, address)
    assert start < closer[0] < closer[1] < end
    above = -canvas.size["height"] // 2
    ActionChains(tab.driver).move_to_element_with_offset(canvas, 0, above + 60).click().perform()
    tab.wait_text(DRAWER, "Compil")
    ruler = ActionChains(tab.driver).move_to_element_with_offset(
        canvas, -100, -canvas.size["height"] // 2 + 8
    )
    ruler.click_and_hold().move_by_offset(250, 4).release().perform()
    tab.wait(lambda: "p.torch_compile.range=" in tab.address(), "the range in the address")
    tab.wait_text(DRAWER, "kinds of host slices")


def test_lanes_fold_and_the_list_tells_the_same(tab: Tab) -> None:
    open_timeline(tab)
    tab.click("ul[aria-label='Lanes'] button", "Compiled regions")
    tab.wait(lambda: "p.torch_compile.lanes=0,1f" in tab.address(), "the folded lane in the address")
    tab.one(CANVAS).send_keys("t")
    tab.wait(lambda: tab.rows("Slices in view"), "the list")
    lanes = {row[0] for row in tab.rows("Slices in view")}
    assert lanes  # in the order of time: those that began first
    tab.one("input[aria-label='Search in Slices in view']").send_keys("capture.py:28")
    tab.wait(lambda: len(tab.rows("Slices in view")) < 4, "the found rows")
    assert any(row[0] == "Graph breaks" for row in tab.rows("Slices in view"))


def test_what_is_in_view_is_saved_as_a_trace(tab: Tab, downloads: Path) -> None:
    open_timeline(tab)
    tab.click("summary", "Save")
    tab.click("a", "What is in view, as a trace")
    found = tab.wait(lambda: next(downloads.glob("*.json.gz"), None), "the download")
    trace = json.loads(gzip.decompress(found.read_bytes()))
    assert any(event["name"] == "ProfilerStep#2" for event in trace["traceEvents"])
    assert tab.outside_requests() == []


def test_both_themes_paint_their_own_colours(tab: Tab) -> None:
    open_timeline(tab)
    light = set(tab.script(COLORS, CANVAS))
    assert {"255,255,255", "90,150,210", "155,136,214"} <= light  # paper, regions, backward
    tab.script("parent.document.body.classList.add('dark-mode')")
    tab.wait(lambda: "29,31,34" in tab.script(COLORS, CANVAS), "dark paper")
    dark = set(tab.script(COLORS, CANVAS))
    assert {"79,138,198", "134,116,196"} <= dark and not {"90,150,210", "155,136,214"} & dark
    tab.script("parent.document.body.classList.remove('dark-mode')")
    tab.driver.set_window_size(500, 900)
    try:
        tab.wait(lambda: tab.script("return innerWidth") < 600, "the narrow window")
        assert tab.script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        tab.driver.set_window_size(1400, 1000)
