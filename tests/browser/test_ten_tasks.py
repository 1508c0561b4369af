"""Ten questions of somebody who has just opened the tab, each answered within two clicks, the first within none.

The recordings' answers are known beforehand: what is asserted is the answer, and how many clicks it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from browser.tab import Tab

pytestmark = pytest.mark.browser

GROUP, ROW = "nav .name a", "tr[data-row] td"


@pytest.fixture(scope="module")
def runs(logdir: Path, recording: Callable[[str], Path]) -> Iterator[dict[str, str]]:
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


def test_what_should_be_done_first(tab: Tab) -> None:
    with within(tab, 0, "breaks"):
        tab.wait_text("h1", "4 graph breaks, the dearest at capture.py:28: without them a step takes 3.54 ms")


def test_which_line_costs_most_forward_and_backward(tab: Tab) -> None:
    with within(tab, 1, "resnet18") as visitor:
        visitor.click(GROUP, "Code")
        tab.wait_text("h1", "resnet.py:96 takes 481 µs a step")
        hottest = tab.rows("Lines")[0]
        assert hottest[0] == "resnet.py:96" and "out = self.conv2(out)" in hottest
        assert all(float(cell.split()[-1]) > 0 for cell in hottest[1:3])


def test_why_the_gpu_is_idle(tab: Tab) -> None:
    with within(tab, 0, "resnet18"):
        tab.wait_text("figure[aria-label='What GPU 0 did']", "idle: operators, launching")
        tab.wait_text("table[aria-label='What held the GPU up']", "compiled graph")


def test_a_kernels_code_launch_and_gap_before(tab: Tab) -> None:
    with within(tab, 2, "resnet18") as visitor:
        visitor.click("[aria-label='Time by kernel category'] a", "Triton pointwise")
        tab.rows("Kernels")
        visitor.click(ROW, "triton_poi_")
        tab.wait_text("aside", "grid", "Idle before", "Source, as inductor generated it")
        tab.wait_text("aside .code", "@triton")


def test_what_got_slower(tab: Tab) -> None:
    with within(tab, 2, "resnet18") as visitor:
        visitor.click("nav a", "Compare")
        tab.wait_text("h1", "B is slower: the mean step takes 13.0 ms instead of 6.02 ms")
        tab.wait_text("main", "idle: operators, launching\n+4.07 ms")


def test_which_rank_the_others_wait_for(tab: Tab, runs: dict[str, str]) -> None:
    with within(tab, 1, runs["late rank"]) as visitor:
        tab.wait_text("h1", "Rank 1")
        visitor.click("h1 a", "Ranks")
        tab.rows("Who waits for whom")


def test_why_it_recompiled(tab: Tab, runs: dict[str, str]) -> None:
    with within(tab, 1, runs["recompiles"]) as visitor:
        visitor.click("[aria-label='Counts'] a", "recompiles")
        tab.wait_text("main", "self.temperature == 1")


def test_what_ran_eager(tab: Tab) -> None:
    with within(tab, 1, "breaks") as visitor:
        visitor.click("figure[aria-label='What GPU 0 did'] button", "idle: break or eager op")
        tab.wait_text("main", "aten::ones_like")


def test_how_much_of_the_model_is_compiled(tab: Tab) -> None:
    with within(tab, 0, "resnet18"):
        tab.wait_text("[aria-label='Counts']", "91.7 % of GPU time compiled")


def test_where_memory_peaks(tab: Tab, runs: dict[str, str]) -> None:
    with within(tab, 2, runs["memory"]) as visitor:
        visitor.click(GROUP, "Run")
        visitor.click("nav a", "Memory")
        tab.wait_text("h1", "peak")


def test_it_is_sent_to_a_colleague(tab: Tab) -> None:
    with within(tab, 2, "resnet18") as visitor:
        visitor.click("nav a", "Findings")
        tab.wait_text("h1", "findings")
        there, mine = tab.address(), tab.driver.current_window_handle
        tab.driver.switch_to.new_window("tab")
        tab.driver.get(there)
        tab.enter()
        tab.wait_text("h1", "findings")
        tab.driver.close()
        tab.driver.switch_to.window(mine)
