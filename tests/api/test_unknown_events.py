"""What a newer torch may write beside what is known (categories, string pids, counters) moves no number of a report."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recordings import Recording
from tb_torchcompile_plugin.api.report import read_report
from traces import Event

pytestmark = pytest.mark.slow

RECORDINGS = ("breaks", "small_batch", "p_table")
NAME = "w.1.pt.trace.json"
# what is of the file and not of the run
FILE = ("span", "trace_file", "size_bytes", "events", "warnings", "coverage")
NEW = ("graph_event_node", "graph_host_node", "pm_sampling", "cuda_sync_2")
PIDS = st.sampled_from(["GPU 0 Counters", "", 7, 0, "Spans"])
INSIDE = st.floats(0.1, 0.9)  # of what was recorded


@st.composite
def unknown(draw: st.DrawFn) -> tuple[float, Event]:
    """Where it begins, and the event but for its time."""
    kind = draw(st.sampled_from(["counter", "slice", "arrow", "instant"]))
    event: Event = {
        "name": draw(st.sampled_from(["SM active %", "", "wait_on_event"])),
        "pid": draw(PIDS),
        "tid": 0,
    }
    if kind == "counter":
        event |= {"ph": "C", "args": {"": draw(st.floats(0, 1e9))}}
    elif kind == "slice":
        event |= {"ph": "X", "cat": draw(st.sampled_from(NEW))}
        event |= {"dur": draw(st.floats(0, 50)), "args": {"graph id": 3}}
    elif kind == "arrow":
        event |= {
            "ph": draw(st.sampled_from("sf")),
            "cat": "graph_dep",
            "id": 2**40 + draw(st.integers(0, 3)),
        }
    else:
        event |= {"ph": "i", "s": "t", "cat": draw(st.sampled_from(NEW))}
    return draw(INSIDE), event


class Known:
    """A recorded trace, and what is reported of it."""

    def __init__(self, path: Path, copy: Path) -> None:
        self.document = json.loads(path.read_bytes())
        times = [row["ts"] for row in self.document["traceEvents"] if row.get("ph") == "X"]
        self.first, self.last = min(times), max(times)
        copy.write_text(json.dumps(self.document))
        self.report = reported(copy)


@pytest.fixture(scope="module")
def traces(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Known]:
    """The smallest trace of each recording, alone."""
    known = {}
    for name in RECORDINGS:
        path = min(recording(name).rglob("*.pt.trace.json"), key=lambda one: one.stat().st_size)
        known[name] = Known(path, tmp_path_factory.mktemp(name) / NAME)
    return known


def reported(path: Path) -> Any:
    """Everything of a trace, but for its name, how many events it has, and which of them the timeline opens."""
    report = msgspec.to_builtins(read_report(str(path)))
    (run,) = report["runs"]
    spans = [span for worker in run["workers"] for span in worker["spans"]]
    for span in spans:
        for name in FILE:
            span.pop(name)
        for gap in span["gpu_utilization"]["longest_gaps"]:
            gap.pop("row")
        for culprit in span["gpu_utilization"]["idle_reasons"]:
            culprit.pop("longest_row")
    return spans, [{**row, "span": "", "worker": ""} for row in report["findings"]]


@settings(
    max_examples=settings().max_examples // 2, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # each reads a whole trace
@given(st.sampled_from(RECORDINGS), st.lists(unknown(), min_size=1, max_size=12), st.integers(0, 10**6))
def test_no_number_moves(
    tmp_path_factory: pytest.TempPathFactory,
    traces: dict[str, Known],
    name: str,
    events: list[tuple[float, Event]],
    place: int,
) -> None:
    known = traces[name]
    rows = known.document["traceEvents"]
    added = [{**event, "ts": known.first + share * (known.last - known.first)} for share, event in events]
    at = place % (len(rows) + 1)
    path = tmp_path_factory.mktemp("unknown") / NAME
    path.write_text(json.dumps({**known.document, "traceEvents": [*rows[:at], *added, *rows[at:]]}))
    assert reported(path) == known.report, "a number moved"
