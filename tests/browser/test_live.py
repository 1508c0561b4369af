"""The tab on a logdir that changes while it is open, that is empty, or that holds what should not be there."""

import shutil
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from browser.processes import WITH_ALL_PLUGINS, Servers
from browser.tab import Tab
from recordings import Recording
from traces import kernel, write_trace

pytestmark = pytest.mark.browser

BREAKS = "vm_1027.1795230252555613000.pt.trace.json"
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>\u001b[31m"


def test_an_empty_logdir_shows_the_way_then_the_first_trace_then_a_lost_server(
    driver: Chrome, servers: Servers, tmp_path: Path, recording: Recording
) -> None:
    address = servers.start(tmp_path, WITH_ALL_PLUGINS)
    tab = Tab(driver, address)
    tab.open()
    tab.wait_text("main", "No trace and no compile log in this logdir yet")
    tab.wait_text("pre", "on_trace_ready=tensorboard_trace_handler(")
    shutil.copytree(recording("resnet18_eager"), tmp_path / "first")
    tab.reload_data()
    tab.wait_text("h1", "13.6 ms per step")
    assert tab.complaints() == []

    shutil.copytree(recording("breaks"), tmp_path / "second")
    tab.reload_data()
    tab.wait(lambda: "second" in tab.options("Run"), "the second run")
    servers.stop(address)
    tab.pick("Run", "second")
    tab.wait_text("main", "TensorBoard does not respond.")
    tab.complaints()  # the browser reports the refused connection


def test_a_new_span_appears_and_the_place_stays(tab: Tab, logdir: Path) -> None:
    tab.open(run="breaks")
    tab.wait(lambda: len(tab.options("Span")) == 1, "the span")
    later = BREAKS.replace("1795230252555613000", "1795230299000000000")
    shutil.copy(logdir / "breaks" / BREAKS, logdir / "breaks" / later)
    try:
        tab.reload_data()
        tab.wait(lambda: len(tab.options("Span")) == 2, "the second span")
        assert tab.options("Span")[0].startswith("1 of 2")
        tab.wait_address("span=1795230252555613000")
    finally:
        (logdir / "breaks" / later).unlink()
    tab.reload_data()
    tab.wait(lambda: len(tab.options("Span")) == 1, "the span to vanish")


def test_a_half_written_trace_is_read_once_it_is_whole(tab: Tab, logdir: Path, added: Path) -> None:
    whole = (logdir / "breaks" / BREAKS).read_bytes()
    file = added / "vm_7.1795230300000000000.pt.trace.json"
    file.write_bytes(whole[: len(whole) // 2])
    tab.open(run=added.name)
    tab.wait_text("main", "Warning.")
    tab.click("footer button", "warning")
    tab.wait_text("aside", file.name)
    file.write_bytes(whole)
    tab.reload_data()
    tab.wait_text("h1", "6.02 ms per step")
    tab.wait_text("footer", "no warnings")


def test_an_address_of_what_is_gone_says_so(tab: Tab) -> None:
    tab.open(run="breaks", span="123")
    tab.wait_text("main", "The span “123” does not exist in this logdir")
    tab.click("button", "Show the newest span")
    tab.wait_text("h1", "6.02 ms per step")
    tab.go(run="breaks", panel="graph_breaks", row="graph_breaks:99")
    tab.wait_text("aside", "which is not in this table")


def test_text_from_a_trace_stays_text(tab: Tab, added: Path) -> None:
    write_trace(added, [kernel(EVIL, 10, 5)], "vm_8.1795230300000000000.pt.trace.json")
    tab.open(run=added.name, panel="kernels")
    tab.wait(lambda: any("<img src=x" in row[0] for row in tab.rows("Kernels")), "the name as text")
    tab.click("tbody td", "<img")
    tab.wait_text("aside pre", "onerror")
    assert tab.script("return document.title") != "owned"
    assert tab.script("return document.querySelectorAll('img, script:not([src])').length") <= 1


def test_without_a_schedule_the_span_is_one_window(tab: Tab, added: Path) -> None:
    write_trace(added, [kernel("k", 10, 5)], "vm_9.1795230300000000000.pt.trace.json")
    tab.open(run=added.name)
    tab.wait_text("h1", "5.00 µs in this span")
