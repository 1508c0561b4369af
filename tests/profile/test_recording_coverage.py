"""profile/coverage.py: what a recording lacks is named, and nothing is claimed that rests on it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import profile_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.overview import headline
from tb_torchcompile_plugin.profile.coverage import Coverage, coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time

Event = dict[str, Any]
# Rules that claim that something did not happen, or was idle.
CLAIMS = {"nothing_compiled", "nothing", "frame_given_up", "large_site"}


@cache
def document(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def without(recorded: Path, folder: Path, events: list[Event]) -> Profile:
    """The profile of the recorded trace with these events."""
    path = folder / "w.1.pt.trace.json"
    path.write_text(json.dumps({**document(recorded), "traceEvents": events}))
    return profile_of(path)


@pytest.fixture(scope="module")
def recorded(recording: Recording) -> Path:
    (path,) = recording("breaks").glob("*.pt.trace.json")
    return path


def is_launch(event: Event) -> bool:
    return event.get("cat") in ("cuda_runtime", "cuda_driver") and "Launch" in event["name"]


def row_of(covered: Coverage, kind: str) -> Any:
    (row,) = [row for row in covered.rows if row.kind == kind]
    return row


def test_a_healthy_trace_is_complete(recorded: Path) -> None:
    assert profile_of(recorded).of(coverage) == Coverage("complete", [])


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_lost_gpu_records_are_named(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    events = document(recorded)["traceEvents"]
    launches = [event["args"]["correlation"] for event in events if is_launch(event)]
    lost = data.draw(st.sets(st.sampled_from(launches), min_size=1, max_size=len(launches)))
    kept = [row for row in events if row.get("cat") != "kernel" or row["args"]["correlation"] not in lost]
    profile = without(recorded, tmp_path_factory.mktemp("lost"), kept)
    row = row_of(profile.of(coverage), "gpu_records")
    assert (row.count, row.of) == (len(lost), len(launches))
    steps = profile.of(StepWindows)
    moments = [int(1000 * e["ts"]) for e in events if is_launch(e) and e["args"]["correlation"] in lost]
    begin = min(int(1000 * e["ts"]) for e in events if e["name"].startswith("ProfilerStep"))
    first = int(steps.starts[0])
    inside = steps.holding(np.array(moments) - begin + first)
    assert row.steps == [name for name, is_in in zip(steps.names, inside, strict=True) if is_in]
    assert "all on the CPU" not in headline(profile)
    if profile.of(coverage).level == "insufficient":
        assert headline(profile).startswith(row.sentence)
        assert not {finding.rule for finding in span_findings(profile)} & CLAIMS


def test_a_thread_without_operators_is_unknown_and_not_eager(recorded: Path, tmp_path: Path) -> None:
    events = document(recorded)["traceEvents"]
    threads = {event["tid"] for event in events if is_launch(event)}
    kept = [
        row
        for row in events
        if row.get("cat") not in ("cpu_op", "user_annotation") or row["tid"] not in threads
    ]
    profile = without(recorded, tmp_path, kept)
    row = row_of(profile.of(coverage), "thread_operators")
    assert (row.level, row.count) == ("insufficient", len(threads))
    assert not {finding.rule for finding in span_findings(profile)} & CLAIMS
    assert headline(profile).startswith(row.sentence)


def test_a_step_mark_that_is_missing_is_named(recorded: Path, tmp_path: Path) -> None:
    events = document(recorded)["traceEvents"]
    names = sorted({event["name"] for event in events if event["name"].startswith("ProfilerStep")})
    kept = [event for event in events if event["name"] != names[1]]
    profile, healthy = without(recorded, tmp_path, kept), profile_of(recorded)
    assert profile.of(step_time).step_us == pytest.approx(healthy.of(step_time).step_us, rel=0.1)
    row = row_of(profile.of(coverage), "step_marks")
    assert (row.level, row.steps, row.count, row.of) == ("partial", [names[1]], 1, 3)


@settings(max_examples=10, deadline=None)
@given(hours=st.integers(-1000, 1000).filter(bool), number=st.integers(0, 50))
def test_a_kernel_with_a_wrong_clock_is_left_out(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory, hours: int, number: int
) -> None:
    events = document(recorded)["traceEvents"]
    kernels = [index for index, event in enumerate(events) if event.get("cat") == "kernel"]
    index = kernels[number % len(kernels)]
    shifted = {**events[index], "ts": events[index]["ts"] + hours * 3.6e9}
    kept = [*events[:index], shifted, *events[index + 1 :]]
    profile, healthy = without(recorded, tmp_path_factory.mktemp("clock"), kept), profile_of(recorded)
    row = row_of(profile.of(coverage), "times")
    assert row.count == 1
    assert profile.of(step_time).step_us == pytest.approx(healthy.of(step_time).step_us, rel=0.1)


@pytest.mark.parametrize(("version", "is_wrong"), [(23, 0), (24, 1), (130001, 1), (130100, 0), (None, 0)])
def test_versions_of_cupti_with_wrong_times_in_cuda_graphs(
    recorded: Path, tmp_path: Path, version: int | None, is_wrong: int
) -> None:
    events = [
        {**row, "name": "cudaGraphLaunch"} if is_launch(row) else row
        for row in document(recorded)["traceEvents"]
    ]
    path = tmp_path / "w.1.pt.trace.json"
    path.write_text(json.dumps({**document(recorded), "cupti_version": version, "traceEvents": events}))
    rows = [row for row in profile_of(path).of(coverage).rows if row.kind == "times"]
    assert [(row.level, row.count) for row in rows] == [("partial", sum(map(is_launch, events)))] * is_wrong


def test_what_was_repaired_is_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "w.1.pt.trace.json"
    event = b',{"ph":"X","cat":"cpu_op","name":"a\xff","pid":1,"tid":1,"ts":2,"dur":3}'
    mark = b'{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1,"dur":9}'
    path.write_bytes(b'{"traceEvents":[' + mark + event + b"]}")
    profile = profile_of(path)
    assert profile.trace.notices and profile.of(coverage).level == "complete"
