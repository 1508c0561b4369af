"""Two runs side by side, from the verdict to the difference of their code; and all runs next to one another."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from browser.tab import Tab

pytestmark = pytest.mark.browser


def first_kernel(tab: Tab) -> list[str]:
    """The tables come after the verdict."""
    return tab.rows("Kernels")[0][:3]


def test_two_runs_side_by_side(tab: Tab) -> None:
    """The baseline is the run of the same program; the address says so, and what is swapped can be linked."""
    tab.open(run="resnet18_eager", panel="compare")
    tab.wait_text("h1", "the mean step takes 13.6 ms instead of 13.0 ms")
    tab.wait_address("run2=resnet18&")
    Select(tab.one(".sides select")).select_by_visible_text("breaks · vm_1027")
    tab.wait_text("h1", "the two runs execute different programs")
    tab.wait_address("run2=breaks&")
    Select(tab.one(".sides select")).select_by_visible_text("resnet18 · vm_424")
    tab.wait_text(
        "h1", "the mean step takes 13.6 ms instead of 13.0 ms (+4.21 %), within the noise of 3 and 3 steps"
    )
    tab.wait_address("run2=resnet18&")
    tab.wait_text(".panel", "The candidate has no compile data")
    tab.settle()
    bars = tab.text("ul[aria-label='Where the step time changes']").splitlines()
    assert (bars[:2], bars[-2:]) == (["Baseline", "13.0 ms"], ["Candidate", "13.6 ms"])
    assert first_kernel(tab) == ["convolution_backward", "Convolution", "+105\u202fµs"]

    tab.click("button", "Swap")
    tab.wait_text("h1", "the mean step takes 13.0 ms instead of 13.6 ms")
    swapped = ["convolution_backward", "Convolution", "−105\u202fµs"]
    tab.wait(lambda: first_kernel(tab) == swapped, "the kernels the other way around")
    tab.wait_address("run=resnet18&")


def test_the_code_of_two_runs_as_a_difference(tab: Tab) -> None:
    tab.open(run="resnet18", panel="compare", run2="breaks", table="compilations")
    tab.wait_text("h1", "the two runs execute different programs")
    tab.wait_address("span2=1795230252555613000")
    assert tab.rows("Compilations")[0][:2] == ["forward", "forward"]
    tab.click("[aria-label='Compilations'] a", "0/0 → 0/0")
    tab.wait_text("h1", "Inductor output code, attempt 2 of breaks: −4,532 +87 lines")
    tab.click("nav[aria-label='Texts of this compilation'] a", "AOT forward graph")
    tab.wait_text("h1", "0/0 forward: AOT forward graph, attempt 2 of breaks")
    tab.click("a", "Swap sides")
    tab.wait_text("h1", "AOT forward graph, attempt 1 of resnet18")
    tab.wait_address("run=breaks&")


def test_what_is_gone_is_named(tab: Tab) -> None:
    tab.open(run="resnet18", panel="compare", run2="gone", worker2="w", span2="1")
    tab.wait_text("[role='alert']", "Baseline: there is no worker 'w' in run 'gone'")
    assert all("404" in complaint for complaint in tab.complaints())


def test_idle_parts_are_hatched_and_each_part_leads_on(tab: Tab) -> None:
    tab.open(run="resnet18", panel="compare", run2="resnet18_eager")
    parts = "ul[aria-label='Where the step time changes'] button"
    tab.one(parts)
    idle = [part for part in tab.all(parts) if part.text.startswith("idle:")]
    assert idle and all(part.find_elements(By.CSS_SELECTOR, ".fill.idle") for part in idle)
    assert len(tab.all(f"{parts} .fill.idle")) == len(idle)
    tab.click(parts, "Convolution")
    tab.wait(lambda: {row[1] for row in tab.rows("Kernels")} == {"Convolution"}, "its kernels alone")
    tab.click(parts, "idle: Python")
    tab.wait_address("section=ledger", "search.ledger=python")


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
