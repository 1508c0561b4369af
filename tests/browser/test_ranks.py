"""Ranks, in the tab: the verdict, the map of steps by mouse and by keyboard, and the way to each rank."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

import many_ranks
from browser.rank_traces import write_job
from browser.tab import Tab

pytestmark = pytest.mark.browser

RANKS = 6
MAP = "figure[aria-label='exposed wait by rank and step']"


@pytest.fixture(scope="module", autouse=True)
def _late(logdir: Path) -> Iterator[None]:
    """The run `late`, whose rank 5 is missing."""
    folder = logdir / "late"
    write_job(folder, ranks=RANKS, steps=3, late=2)
    (folder / f"rank5.{1_795_000_000_000_000_005}.pt.trace.json").unlink()
    yield
    shutil.rmtree(folder)


def test_the_numbers_of_a_job(tab: Tab) -> None:
    tab.open(run="late", panel="ranks")
    tab.wait_text("main", "Steps of all ranks")
    tab.wait_text("main", "5 ranks of 6 were recorded. 1 rank is missing (5)")
    assert [row[0] for row in tab.rows("By rank")] == ["0", "1", "2", "3", "4"]
    assert "all reduce" in tab.rows("Collectives")[0]
    tab.wait_text("main", "Why rank 2 is the straggler")
    assert tab.rows("Why the straggler is late")[0][0] == "nothing recorded"


def test_the_map_is_read_by_keyboard_and_its_choice_stays_in_the_address(tab: Tab) -> None:
    tab.open(run="late", panel="ranks")
    tab.tab_to(f"{MAP} canvas")
    tab.wait_text(MAP, "Rank 0, step #0, exposed wait: 5.04 ms")
    tab.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    tab.wait_text(MAP, "Rank 2, step #0, exposed wait: 0 µs")
    tab.press(Keys.ARROW_DOWN, Keys.ENTER)
    tab.wait_address("job_step=ProfilerStep%231")
    tab.wait_address("row=ranks:2")
    tab.wait_text("aside", "Where a step goes")
    tab.go(run="late", panel="ranks", ranks="outliers", measure="idle_us")
    tab.one("figure[aria-label='idle by rank and step']")


def test_a_rank_is_picked_and_other_panels_lead_back(tab: Tab) -> None:
    tab.open(run="late", panel="ranks")
    tab.click("table[aria-label='By rank'] td:first-child", "3")
    tab.click("aside a", "Overview")
    tab.wait_address("worker=rank3")
    tab.click("nav a", "Ranks")
    tab.wait_text("main", "Steps of all ranks")
    tab.wait_address("worker=rank3")


def test_a_run_of_one_process_says_why_there_is_nothing(tab: Tab) -> None:
    tab.open(run="resnet18_eager", panel="ranks")
    tab.wait_text("[role=note]", "traces of two or more")
    tab.wait_text("main", "worker_name=f")
    assert "Ranks" in tab.texts("nav a")


def test_a_collective_leads_to_its_time_on_the_timeline_of_each_rank(tab: Tab) -> None:
    tab.open(run="late", panel="ranks")
    tab.click("td", "all reduce")
    tab.wait_count("aside figure[aria-label^='The collective on rank']", 5)
    tab.click("aside figure[aria-label='The collective on rank 2'] button", "transfer")
    tab.wait_address("panel=timeline")
    tab.wait_address("worker=rank2")


def test_a_step_that_there_is_not_is_the_first_one(tab: Tab) -> None:
    tab.open(run="late", panel="ranks", job_step="ProfilerStep#99", measure="compile_us", row="ranks:1")
    tab.one("figure[aria-label='compile by rank and step']")
    tab.wait_count("aside figure[aria-label='Parts of the step of rank 1']", 1)


def test_the_overview_and_the_findings_of_a_rank_tell_the_jobs(tab: Tab) -> None:
    """Without anybody having opened Ranks; and not that its communication should be overlapped."""
    tab.open(run="late", worker="rank0")
    tab.wait_text("h1", "Rank 2 is the straggler")
    tab.wait_text("main", "This rank: ")
    tab.click("nav a", "Findings")
    tab.wait_text("ol[aria-label=Findings] li:first-child", "Rank 2 is the straggler")
    tab.settle()
    assert "overlap" not in tab.text("ol[aria-label=Findings]")
    tab.click("ol[aria-label=Findings] li:first-child a", "Show in Ranks")
    tab.wait_text("main", "Steps of all ranks")


@pytest.fixture
def before_and_after(logdir: Path) -> Iterator[None]:
    """Two jobs of three ranks, of which another one is late."""
    for run, late in (("before", 2), ("after", 1)):
        write_job(logdir / run, ranks=3, steps=3, late=late)
    yield
    shutil.rmtree(logdir / "before")
    shutil.rmtree(logdir / "after")


@pytest.mark.usefixtures("before_and_after")
def test_two_jobs_are_compared_rank_by_rank(tab: Tab) -> None:
    tab.open(run="after", run2="before", panel="compare")
    tab.wait_text("main", "ank 2 is the straggler")
    tab.wait_text("main", "ank 1 is the straggler")
    assert [row[0] for row in tab.rows("Ranks")] == ["0", "1", "2"]


@pytest.fixture
def many(logdir: Path) -> Iterator[None]:
    """The run `many`: 72 ranks by their digests alone."""
    many_ranks.write_job(logdir / "many", 72, many_ranks.Planted(rank=37, host=2, pair=3))
    yield
    shutil.rmtree(logdir / "many")


@pytest.mark.usefixtures("many")
def test_very_many_ranks_are_one_sentence_and_one_map(tab: Tab) -> None:
    tab.open(run="many", panel="ranks")
    tab.wait_text("h1", "Rank 37 is the straggler")
    tab.wait_text("main", "The traces are not read together")
    tab.wait_text("main", "8 more not listed")
    heat = "figure[aria-label='late by rank and step']"
    tab.tab_to(f"{heat} canvas")
    tab.wait_text(heat, "Rank 0 on node0000, mean of its steps, late")
    tab.press(Keys.ARROW_DOWN)
    tab.wait_text(heat, "Rank 64 on node0008")
    tab.press(Keys.ENTER)
    tab.wait_address("worker=node0008_100064")
    tab.wait_text("main", "Only the digest of this rank was found.")


@pytest.mark.usefixtures("many")
def test_one_of_very_many_workers_is_searched_for(tab: Tab) -> None:
    tab.open(run="many", panel="ranks", measure="exposed_wait_us", ranks="outliers")
    tab.one("figure[aria-label='exposed wait by rank and step']")
    field = tab.one("header input")
    tab.wait_count("header datalist option", 72)
    field.send_keys("node0004_100037" + Keys.ENTER)
    tab.wait_address("worker=node0004_100037")
    tab.one("header input[placeholder='node0004_100037']")
