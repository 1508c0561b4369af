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
LANES = "figure[aria-label^='One step of']"
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


def test_one_step_of_all_ranks_is_drawn_and_leads_to_a_ranks_own_timeline(job: Tab) -> None:
    job.open(run="late", panel="ranks", job_step="ProfilerStep#1")
    job.wait_text(f"section:has({LANES})", "Step 1 takes")
    assert "rank 2 comes last at 1 collective" in job.text(f"section:has({LANES})")
    assert job.script("return document.querySelector(arguments[0]).width", f"{LANES} canvas") > 600
    assert {row[1] for row in job.rows("Collectives of the step")} == {"all reduce"}
    job.tab_to(f"{LANES} canvas")
    job.press("+")
    job.wait(lambda: "job_from=" in job.address(), "a closer view to be kept")
    job.wait_text(f"section:has({LANES})", "of step 1")
    job.press("0")
    job.wait(lambda: "job_from=" not in job.address(), "the whole step again")
    job.click("table[aria-label='Collectives of the step'] tbody tr td", "all reduce")
    job.click("aside a", "Rank 3")
    job.wait(
        lambda: "panel=timeline" in job.address() and "worker=rank3" in job.address(), "rank 3's timeline"
    )
    job.settle()
    assert "slice=" in job.address() and job.complaints() == []


def test_a_step_that_there_is_not_and_a_click_into_the_picture(job: Tab) -> None:
    job.open(run="late", panel="ranks", job_step="ProfilerStep#99")
    job.wait_text("main", "No rank has a step 'ProfilerStep#99'.")
    assert len(job.complaints()) == 1  # of the browser, that the answer was 400
    job.open(run="late", panel="ranks", measure="compile_us")
    job.wait(lambda: job.all("figure[aria-label='compile by rank and step']"), "the map of compiling")
    canvas = job.one(f"{LANES} canvas")
    job.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    canvas.click()
    job.wait(lambda: "panel=timeline" in job.address(), "a rank's timeline")
    assert job.complaints() == []


def test_the_overview_and_the_findings_of_a_rank_tell_the_jobs(job: Tab) -> None:
    """Without anybody having opened Ranks; and not that its communication should be overlapped."""
    job.open(run="late", worker="rank0")
    job.wait_text("main", "Of the job: Rank 2 comes last")
    job.click("nav a", "Findings")
    job.wait_text("ol[aria-label=Findings] li:first-child", "Rank 2 comes last")
    assert "that nothing overlaps" not in job.text("ol[aria-label=Findings]")
    job.click("ol[aria-label=Findings] li:first-child a", "Show in Ranks")
    job.wait_text("main", "Who waits for whom")
    assert job.complaints() == []


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
