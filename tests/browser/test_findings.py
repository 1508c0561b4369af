"""Findings in the tab: what they say and lead to, and fixes, which change the time and the picture."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from browser.tab import Tab
from recordings import Recording
from tb_torchcompile_plugin.api.report import RunFinding, read_report
from traces import Event, in_steps, slice_

pytestmark = pytest.mark.browser

COUNT = "nav ul ul li:nth-child(2) .badge"
FindingsOf = Callable[[str], list[RunFinding]]


@pytest.fixture(scope="session")
def findings_of(recording: Recording) -> FindingsOf:
    """What there is to show of a run, in its order."""
    return cache(lambda run: read_report(str(recording(run))).findings)


def serious(rows: list[RunFinding]) -> int:
    """What the badge counts."""
    return sum(row.severity != "info" for row in rows)


def test_findings_are_counted_and_lead_to_what_they_are_about(tab: Tab, findings_of: FindingsOf) -> None:
    rows = findings_of("breaks")
    tab.open(run="breaks")
    tab.wait_text(COUNT, str(serious(rows)))
    tab.wait_text("h1", f"GPU busy 2.52 %. {rows[0].title}.")
    tab.click("section a", "All findings")
    tab.wait_text("main", f"{len(rows)} findings, most important first")
    tab.settle()
    assert "saves at most" not in tab.text("main"), "next to a prediction it would contradict it"
    assert tab.texts("[aria-label='Findings'] label") == [f"{row.severity} {row.title}." for row in rows]
    tab.click("[aria-label='Findings'] a", "Show in Graph breaks")
    tab.wait_text("aside", "capture.py")
    tab.wait_text("aside h2", "graph_break()")


def test_their_order_is_explained(tab: Tab) -> None:
    tab.open(run="breaks", panel="findings")
    tab.click("main p button", "most important first")
    tab.wait_text("body", "unless such a fix gains more than three times as much")


def test_a_finding_that_is_switched_off_stays_off_with_its_reason(tab: Tab, findings_of: FindingsOf) -> None:
    rows, of_another_run = findings_of("breaks"), findings_of("resnet18")
    shared = {row.rule for row in of_another_run}
    place, rule = next((n, row.rule) for n, row in enumerate(rows, 1) if row.rule in shared)
    kept = [row for row in rows if row.rule != rule]
    tab.open(run="breaks", panel="findings")
    tab.wait_text(COUNT, str(serious(rows)))
    tab.click(f"[aria-label='Findings'] li:nth-child({place}) button", "Switch off")
    tab.one("input[aria-label='Why it is switched off']").send_keys("kept on purpose", Keys.ENTER)
    tab.wait_text(COUNT, str(serious(kept)))
    tab.again()
    tab.wait_text(COUNT, str(serious(kept)))
    tab.click("main summary", "switched off")
    tab.wait_text(
        "[aria-label='Findings that are switched off']", "Switched off for this run: kept on purpose"
    )
    tab.go(run="resnet18", panel="findings")
    tab.wait_text(COUNT, str(serious(of_another_run)))
    tab.go(run="breaks", panel="findings")
    tab.wait_text(COUNT, str(serious(kept)))
    tab.click("main summary", "switched off")
    tab.click("button", "Switch on")
    tab.wait_text(COUNT, str(serious(rows)))


def test_the_step_says_why_the_gpu_waits(tab: Tab) -> None:
    tab.open(run="breaks", panel="step")
    tab.wait_text("h1", "and idle for 5.87 ms; the largest cause is kernel launches (3.14 ms).")
    did = "figure[aria-label='What GPU 0 did']"
    tab.wait_text(did, "kernel launches\n3.14 ms", "= 6.02 ms per step")
    tab.click("h2 button", "Launch statistics")
    tab.wait_text("main", "Launches per step")
    longest = tab.rows("Longest gaps")[0]
    assert longest[1:4] == ["976", "ProfilerStep#2", "Python"]
    tab.click("table[aria-label='Longest gaps'] tbody tr[data-row]")
    tab.wait_text("aside", "What the thread did")


def test_of_a_trace_that_is_cut_off_nothing_is_said_to_be_all(tab: Tab, logdir: Path, added: Path) -> None:
    """In the findings, in the overview, and where nothing is predicted: what was recorded is not to blame."""
    text = next((logdir / "resnet18_eager").glob("*.pt.trace.json")).read_bytes()
    (added / "x.1.pt.trace.json").write_bytes(text[: len(text) * 6 // 10])
    tab.open(run=added.name, panel="findings")
    tab.wait_text("h1", "No findings in the part that could be read")
    tab.go(run=added.name, panel="overview")
    tab.wait_text("main", "No findings in the part that could be read.")
    tab.go(run=added.name, panel="findings")
    tab.settle()
    assert "ProfilerActivity" not in tab.text("main")


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
