"""All runs next to one another."""

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser

ROW = "table[aria-label='Runs'] tr"


def cells(tab: Tab, run: str) -> list[str]:
    """Of the run's row, as they are shown."""
    return next((row for row in tab.rows("Runs") if row[0].split()[0] == run), [])


def test_all_runs_are_read_by_themselves_and_two_are_compared(tab: Tab) -> None:
    tab.open(panel="all_runs")
    tab.wait(lambda: cells(tab, "breaks")[1:2] not in ([], ["–"]), "that it is read")
    tab.wait_text("h1", "3 runs: ")
    assert cells(tab, "breaks")[1] == "6.02\u202fms"
    assert "4 graph breaks" in cells(tab, "breaks")[2]
    assert cells(tab, "breaks")[3:5] == ["4.56\u202fs", "4"]
    tab.click(f"{ROW} td", "4.56")  # its drawer
    tab.click("aside button", "Pin")
    tab.wait_text("h1", "Step times are compared with run breaks.")
    tab.wait_address("p.torch_compile.pin=breaks")
    tab.click("aside button", "Unpin")
    tab.click("aside button[aria-label='Close']")
    for run in ("breaks", "resnet18"):
        tab.one(f"input[aria-label='Compare {run}']").click()
    tab.click("main a", "Compare ")
    tab.wait_text("h1", "execute different programs")


def test_a_logdir_of_several_runs_opens_on_them_and_a_run_on_its_overview(tab: Tab) -> None:
    tab.load()
    tab.wait_text("h1", "3 runs")
    tab.wait_address("panel=all_runs")
    tab.click(f"{ROW} a", "resnet18_eager")
    tab.wait_text("h1", "13.6 ms")
    tab.back()
    tab.wait_text("h1", "3 runs")
