"""Ten questions of somebody who has just opened the tab, each answered within two clicks, the first within none.

The recordings' answers are known beforehand: what is asserted is the answer, and how many clicks it took.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from browser.tab import Tab
from recordings import Recording

pytestmark = pytest.mark.browser

ROW = "tr[data-row] td"


@pytest.fixture(scope="module")
def runs(logdir: Path, recording: Recording) -> Iterator[dict[str, str]]:
    """By what is wrong: the runs of which the usual three say nothing, beside them."""
    wrong = {
        "late rank": recording("jobs") / "python_late_rank",
        "recompiles": recording("exam") / "changing_attribute",
        "memory": recording("everything"),
    }
    for folder in wrong.values():
        (logdir / folder.name).symlink_to(folder)
    yield {what: folder.name for what, folder in wrong.items()}
    for folder in wrong.values():
        (logdir / folder.name).unlink()


@dataclass
class Visitor:
    """Clicks, and counts them."""

    tab: Tab
    clicks: int = 0

    def click(self, css: str, text: str = "") -> None:
        self.clicks += 1
        self.tab.click(css, text)


@contextmanager
def within(tab: Tab, clicks: int, run: str) -> Iterator[Visitor]:
    """The tab, loaded anew, on a run."""
    tab.load(run=run)
    visitor = Visitor(tab)
    yield visitor
    assert visitor.clicks <= clicks


@pytest.mark.parametrize(
    ("run", "clicks", "css", "answer"),
    [
        # What should be done first?
        ("breaks", [], "h1", "4 graph breaks, the most expensive at capture.py:26"),
        # What got slower?
        ("resnet18", [("nav a", "Compare")], "main", "idle: Python\n+1.61 ms"),
        # Why did it recompile?
        ("recompiles", [("[aria-label='Counts'] a", "recompiles")], "main", "self.temperature == 1"),
        # What ran eager?
        (
            "breaks",
            [("figure[aria-label='What GPU 0 did'] button", "idle: eager operators")],
            "main",
            "aten::ones_like",
        ),
        # How much of the model is compiled?
        ("resnet18", [], "[aria-label='Counts']", "91.7 % of GPU time compiled"),
        # Where does memory peak?
        ("memory", [("nav a", "Memory")], "h1", "peak"),
    ],
)
def test_a_question_is_answered(
    tab: Tab, runs: dict[str, str], run: str, clicks: list[tuple[str, str]], css: str, answer: str
) -> None:
    with within(tab, 2, runs.get(run, run)) as visitor:
        for where, text in clicks:
            visitor.click(where, text)
        tab.wait_text(css, answer)


def test_which_line_costs_most_forward_and_backward(tab: Tab) -> None:
    with within(tab, 1, "resnet18") as visitor:
        visitor.click("nav a", "Your code")
        tab.wait_text("h1", "resnet.py:284 takes 10.6 ms of each step")
        caller, hottest = tab.rows("Lines")[:2]
        assert caller[0] == "…/resnet.py:284" and caller[2] == "10.6"
        assert hottest[0] == "…/resnet.py:96" and "out = self.conv2(out)" in hottest
        assert all(float(cell.split()[0]) > 0 for cell in hottest[3:5])


def test_why_the_gpu_is_idle(tab: Tab) -> None:
    with within(tab, 0, "resnet18"):
        tab.wait_text("figure[aria-label='What GPU 0 did']", "idle: kernel launches")
        tab.wait_text("ul[aria-label='Why GPU 0 was idle']", "compiled graph")


def test_a_kernels_code_launch_and_gap_before(tab: Tab) -> None:
    with within(tab, 2, "resnet18") as visitor:
        visitor.click("figure[aria-label='What GPU 0 did'] button", "Triton pointwise")
        tab.rows("Kernels")
        visitor.click(ROW, "triton_poi_")
        tab.wait_text("aside", "Grid", "GPU idle before", "Generated source")
        tab.wait_text("aside .code", "@triton")


def test_which_rank_the_others_wait_for(tab: Tab, runs: dict[str, str]) -> None:
    with within(tab, 1, runs["late rank"]) as visitor:
        tab.wait_text("h1", "Rank 1")
        visitor.click("nav a", "Ranks")
        tab.rows("By rank")


def test_it_is_sent_to_a_colleague(tab: Tab) -> None:
    with within(tab, 2, "resnet18") as visitor:
        visitor.click("nav a", "Findings")
        tab.wait_text("main", "findings")
        there, mine = tab.address(), tab.driver.current_window_handle
        tab.driver.switch_to.new_window("tab")
        tab.driver.get(there)
        tab.enter()
        tab.wait_text("main", "findings")
        tab.driver.close()
        tab.driver.switch_to.window(mine)
