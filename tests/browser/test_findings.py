"""Findings, GPU utilization and the overview's verdict, in the tab."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab

pytestmark = pytest.mark.browser

GRAPH_BREAKS = "4 graph breaks cost 555 µs a step, 9.22 % of it"
COUNT = "nav li:nth-child(2) .muted"


def test_findings_are_counted_and_lead_to_what_they_are_about(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.wait_text(COUNT, "3")
    tab.wait_text("h1", "GPU busy 2.61 % → launch bound.")
    tab.click("section li a", GRAPH_BREAKS)
    tab.wait_text("h1", "3 findings, most time to save first.")
    assert [e.text.split()[0] for e in tab.all("[aria-label='Findings'] h2")] == [
        "critical",
        "warning",
        "info",
    ]
    tab.click("[aria-label='Findings'] a", "Show in Graph breaks")
    tab.wait_text("aside", "capture.py")
    assert "Data-dependent branching" in tab.text("aside h2")


def test_a_finding_that_is_switched_off_stays_off_with_its_reason(tab: Tab) -> None:
    tab.open(run="breaks", panel="findings")
    tab.wait_text(COUNT, "3")
    tab.click("[aria-label='Findings'] .warning button", "Switch off")
    tab.one("input[aria-label='Why it is switched off']").send_keys("kept on purpose", Keys.ENTER)
    tab.wait_text(COUNT, "2")
    tab.open(run="breaks", panel="findings")
    tab.wait_text(COUNT, "2")
    tab.click("main summary", "1 finding switched off")
    tab.wait_text(
        "[aria-label='Findings that are switched off']", "Switched off for this run: kept on purpose."
    )
    tab.open(run="resnet18", panel="findings")
    tab.wait_text(COUNT, "1")  # another run has its own
    tab.open(run="breaks", panel="findings")
    tab.click("main summary")
    tab.click("button", "Switch on")
    tab.wait_text(COUNT, "3")


def test_gpu_utilization_says_why_the_gpu_waits(tab: Tab) -> None:
    tab.open(run="breaks", panel="gpu_utilization")
    tab.wait_text(
        "h1", "Launch bound for 97.5 % of 3 steps: GPU 0 is busy 2.61 % of the time from its first event"
    )
    assert "With CUDA graphs this step could drop from 6.02 ms to at least 152 µs." in tab.text("h1")
    causes = tab.text("figure[aria-label='Idle time of GPU 0 by cause']").replace("\n", " ")
    assert "launch call 8.43 ms" in causes and "= 17.0 ms idle in 188 gaps" in causes
    assert [row[0] for row in tab.rows("Steps and devices")] == [f"ProfilerStep#{step}" for step in (2, 3, 4)]
    assert "CUDA graphs\nnot used" in tab.text("main")
    longest = tab.rows("Longest gaps")[0]
    assert longest[1:4] == ["976", "Python", "ProfilerStep#2"]
    tab.all("table[aria-label='Longest gaps'] tbody tr[data-row]")[0].click()
    tab.wait_text("aside", "What the thread did")
    tab.click("aside a", "Show on timeline")
    assert "p.torch_compile.panel=timeline" in tab.address()


def test_in_a_narrow_window_nothing_scrolls_sideways(tab: Tab) -> None:
    tab.driver.set_window_size(500, 900)
    try:
        for panel in ("findings", "gpu_utilization"):
            tab.open(run="breaks", panel=panel)
            assert tab.script("return document.documentElement.scrollWidth <= innerWidth"), panel
    finally:
        tab.driver.set_window_size(1400, 1000)
