"""All runs beside one another, and the overview of the last time while a trace is read."""

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser

ROW = "table[aria-label='Runs'] tr"


def cells(tab: Tab, run: str) -> list[str]:
    """Of the run's row, as they are shown."""
    return next((row for row in tab.rows("Runs") if row[0].split()[0] == run), [])


def test_runs_are_compared_without_opening_them_twice(tab: Tab) -> None:
    tab.open(run="breaks")
    for run in ("breaks", "resnet18"):
        tab.go(run=run)
        tab.wait_text("h1", "Step")
        tab.wait_text("[aria-label='Counts']", "compiled")
    tab.click("header a", "All 3 runs")
    tab.wait_text("h1", "3 runs.")
    assert [float(cell) for cell in cells(tab, "breaks")[1:5]] == pytest.approx(
        [6.02, 0.93, 2.52, 86.4], abs=0.03
    )
    assert "4 graph breaks" in cells(tab, "breaks")[5]
    tab.click(f"{ROW} td", "86.4")  # its drawer
    tab.click("aside button", "Pin")
    tab.wait_text("h1", "Steps are held against breaks.")
    tab.wait_address("p.torch_compile.pin=breaks")
    assert cells(tab, "resnet18")[3] == "–", "another program"
    tab.click("aside button", "Unpin")
    tab.click("aside button[aria-label='Close']")
    for run in ("breaks", "resnet18"):
        tab.one(f"input[aria-label='Compare {run}']").click()
    tab.click("main a", "Compare breaks with resnet18")
    tab.wait_text("h1", "run different programs")


def test_a_run_is_opened_from_its_line(tab: Tab) -> None:
    tab.open(panel="runs")
    tab.click(f"{ROW} a", "resnet18_eager")
    tab.wait_text("h1", "Step 13.6 ms")
    tab.back()
    tab.wait(lambda: "not read yet" not in " ".join(cells(tab, "resnet18_eager")), "that it was read")


SLOW = """
    const real = window.fetch;
    window.fetch = (url, options) => String(url).startsWith('span?')
        ? new Promise(done => setTimeout(() => done(new Response(JSON.stringify({progress: {
            file: 'a.json', bytes_read: 5e8, bytes_total: 8e8, events: 1000, seconds_left: 3,
            stage: 'reading', queue_position: 0}}), {status: 202, headers: {'Content-Type': 'application/json'}})), 50))
        : /^(overview|step_breakdown|findings|gpu_utilization)/.test(String(url))
            ? new Promise(() => undefined) : real(url, options);
"""


def test_while_a_trace_is_read_the_overview_of_the_last_time_is_there(tab: Tab) -> None:
    tab.open(run="breaks")
    tab.wait_text("[aria-label='Counts']", "compiled")
    said = tab.text("h1")
    slow = tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SLOW})
    try:
        frame = tab.leave()
        if frame is not None:
            tab.driver.get("about:blank")
        tab.driver.get(f"{tab.url}#torch_compile&p.torch_compile.run=breaks")
        tab.enter()
        tab.wait_text("main", "500 MB of 800 MB")
        assert tab.text("h1") == said
        tab.wait_text("main", "As it was when this span was last read")
        tab.wait_text("main ol", "4 graph breaks")
        tab.wait_text("main", "about 3 s left")
    finally:
        tab.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", slow)
        tab.driver.get("about:blank")
