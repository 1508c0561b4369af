"""Ranks, in the tab: the verdict, the map of steps by mouse and by keyboard, and the way to each rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from browser.processes import Servers
from browser.rank_traces import write_job
from browser.tab import Tab

pytestmark = pytest.mark.browser

RANKS = 6  # the profiler's own tab, where it is installed, has a process for each trace
MAP = "figure[aria-label='exposed wait by rank and step']"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, recording: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "late").mkdir()
    write_job(folder / "late", ranks=RANKS, steps=3, late=2)
    (folder / "late" / f"rank5.{1_795_000_000_000_000_005}.pt.trace.json").unlink()
    (folder / "one").symlink_to(recording("resnet18_eager"))
    return folder


@pytest.fixture
def job(driver: Chrome, servers: Servers, jobs: Path) -> Tab:
    return Tab(driver, servers.start(jobs))


def test_the_numbers_of_a_job(job: Tab) -> None:
    job.open(run="late", panel="ranks")
    job.wait_text("main", "Who waits for whom")
    assert "5 ranks of 6 are here; 1 rank missing (5)" in job.text("main")
    assert job.rows("Ranks")[2][0] == "2" and len(job.rows("Ranks")) == 5
    assert {row[1] for row in job.rows("Who waits for whom")} == {"2"}
    assert job.rows("Collectives")[0][0] == "all reduce"
    assert "nothing recorded" in job.text("ul[aria-label='Why rank 2 comes late']")
    assert job.complaints() == []


def test_the_map_is_read_by_keyboard_and_its_choice_stays_in_the_address(job: Tab) -> None:
    job.open(run="late", panel="ranks")
    job.tab_to(f"{MAP} canvas")
    job.wait_text(MAP, "Rank 0, step #0, exposed wait: 5.04 ms")
    job.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    job.wait_text(MAP, "Rank 2, step #0, exposed wait: 0 µs")
    job.press(Keys.ARROW_DOWN, Keys.ENTER)
    assert "job_step=ProfilerStep%231" in job.address()
    job.open(run="late", panel="ranks", ranks="outliers", measure="idle_us")
    job.wait(lambda: job.all("figure[aria-label='idle by rank and step']"), "the other measure")


def test_a_rank_is_picked_and_other_panels_lead_back(job: Tab) -> None:
    job.open(run="late", panel="ranks")
    job.click("td a", "3")
    job.wait(lambda: "worker=rank3" in job.address(), "rank 3 to be picked")
    job.click("nav a", "Steps")
    job.click("header a", "5 ranks together")
    job.wait_text("main", "Who waits for whom")
    assert "worker=rank3" in job.address()


def test_a_run_of_one_process_says_why_there_is_nothing(job: Tab) -> None:
    job.open(run="one", panel="ranks")
    job.wait_text("[role=note]", "has a trace")
    assert "worker_name=f" in job.text("main")
    assert not job.all("header a")


def test_a_recorded_job(driver: Chrome, servers: Servers, recording: Callable[[str], Path]) -> None:
    tab = Tab(driver, servers.start(recording("ddp")))
    tab.open(panel="ranks")
    tab.wait_text(
        "main", "All 2 ranks of the job are here. 18 calls of collectives matched, none is left over."
    )
    assert {tuple(row[:2]) for row in tab.rows("Who waits for whom")} == {("0", "1"), ("1", "0")}
    assert [row[4] for row in tab.rows("Collectives")] == ["8.39\u202fMB", "27.3\u202fMB", "6.30\u202fMB"]
    assert len(tab.all("figure[aria-label^='Parts of the step of rank']")) == 2
    assert tab.complaints() == []
