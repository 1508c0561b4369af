"""All runs next to one another."""

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
    tab.click("nav a", "All runs")
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
    tab.open(panel="all_runs")
    tab.click(f"{ROW} a", "resnet18_eager")
    tab.wait_text("h1", "Step 13.6 ms")
    tab.back()
    tab.wait(lambda: "not read yet" not in " ".join(cells(tab, "resnet18_eager")), "that it was read")
