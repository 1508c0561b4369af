"""What a recording lacks, and what profiling adds to a step: said once, and nothing below that rests on it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from browser.tab import Tab
from recordings import Recording
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from traces import Event, launch, slice_, step

pytestmark = pytest.mark.browser

STEP_US = 1000


def _steps(complete: int, lost: int) -> list[Event]:
    """Steps that launch a kernel each, whose record is missing in the last ones."""
    events: list[Event] = []
    for number in range(complete + lost):
        at = number * STEP_US
        made = launch("gemm", at + 20, at + 50, 700)
        events += [step(number, at, STEP_US), slice_("aten::mm", at + 10, 30)]
        events += made if number < complete else [event for event in made if event["cat"] != "kernel"]
    return events


def test_what_is_partial_is_the_second_line(tab: Tab, add_run: Callable[[list[Event]], str]) -> None:
    tab.open(run=add_run(_steps(complete=5, lost=1)))
    tab.wait_text("h1", "1.00 ms per step")
    tab.wait_text("[aria-label='Coverage']", "1 of 6", "left no GPU record", "profile fewer steps at once")
    tab.wait_text("figure[aria-label='Steps']", "hatched: GPU records are missing")
    tab.click("footer button", "coverage: partial")
    tab.wait_text("aside", "Coverage: partial", "left no GPU record")


def test_what_is_insufficient_comes_first_and_nothing_is_claimed(
    tab: Tab, add_run: Callable[[list[Event]], str]
) -> None:
    run = add_run(_steps(complete=2, lost=6))
    tab.open(run=run)
    tab.wait_text("h1", "6 of 8")
    tab.wait_text("[aria-label='Coverage']", "profile fewer steps at once")
    tab.wait_text("footer", "coverage: insufficient")
    for panel in ("overview", "step"):
        tab.go(run=run, panel=panel)
        tab.wait_text("figure", "per step")
        tab.settle()
        shown = tab.text("main")
        assert "idle: " not in shown and "was idle" not in shown and "→" not in shown
    tab.go(run=run, panel="findings")
    tab.wait_text("h1", "Too little was recorded to find anything")
    tab.wait_text("[aria-label='Coverage']", "6 of 8")


def test_profiler_overhead_is_behind_the_step(tab: Tab, added: Path, recording: Recording) -> None:
    shutil.copytree(recording("handler_breaks"), added, dirs_exist_ok=True)
    file = next(added.rglob("*.pt.compile.pb"))
    summary = CompileSummary.FromString(file.read_bytes())
    summary.steps.unrecorded_ns.extend([2_600_000] * 6)
    file.write_bytes(summary.SerializeToString())
    tab.open(run=added.name)
    tab.wait_text("h1", "2.60 ms per step")
    bar = "figure[aria-label='What GPU 0 did']"
    tab.wait_text(bar, "= 2.60 ms per step", "profiler overhead", "= 4.19 ms while profiling")
    assert "profiler overhead" in tab.texts(f"{bar} li")[-2]
    assert len(tab.all(f"{bar} .stack .beyond")) == 1
    for panel in ("step", "findings"):
        tab.go(run=added.name, panel=panel)
        tab.wait_text("figure", "2.60 ms")
