"""Lanes and windows of the timeline against their definition, computed slowly from the file."""

import random
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiles import data_of, profile_of, profile_with, spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.timeline import lanes as lane_rows
from tb_torchcompile_plugin.analysis.timeline.lanes import COLORS, ItemSlices, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import MAX_RECTANGLES, Timeline, Window
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.profile import level_of_detail as detail
from tb_torchcompile_plugin.profile.level_of_detail import aligned, shift_for
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES
from timeline_reference import Place, Rectangle, Slice, rectangles, slices_of
from traces import frame, kernel, launch, memory_event, slice_, step, write_trace

Drawn = dict[tuple[Place, int], list[Rectangle]]  # by place and line


def timeline_of(path: Path) -> Timeline:
    return profile_of(path).of(Timeline)


def session_timeline(folder: Path) -> Timeline:
    return spans_in(folder)[0].of(Timeline)


def lane_of(timeline: Timeline, kind: str, title: str = "") -> int:
    return next(lane.id for lane in timeline.lanes if lane.kind == kind and title in lane.title)


def items_of(timeline: Timeline, kind: str, title: str = "") -> ItemSlices:
    items = timeline.slices[lane_of(timeline, kind, title)]
    assert isinstance(items, ItemSlices)
    return items


def tracks(timeline: Timeline) -> dict[int, Place]:
    """The lanes of the trace's own slices."""
    tracks, lanes = timeline.rows.trace.tracks, timeline.slices.items()
    known = {lane: tracks[one.track] for lane, one in lanes if isinstance(one, TrackSlices)}
    return {lane: (track.pid, track.tid) for lane, track in known.items()}


def lines_of(timeline: Timeline, path: Path) -> dict[tuple[Place, int], list[Slice]]:
    """The slices of the file line by line. Which line a crossing one has is free, as long as nothing there overlaps."""
    trace = timeline.rows.trace
    places = [(track.pid, track.tid) for track in trace.tracks]
    rows = dict(zip(places, trace.track_bounds.tolist()))
    lines: dict[tuple[Place, int], list[Slice]] = defaultdict(list)
    for place, slices in slices_of(path).items():
        ordinary = max(one.depth for one in slices) + 1
        for row, one in enumerate(slices, rows[place]):
            line = timeline.rows.line_of(row)
            assert (
                line >= ordinary - any(other.crosses for other in slices)
                if one.crosses
                else line == one.depth
            )
            one.start, one.end = one.start - timeline.origin, one.end - timeline.origin
            lines[place, line].append(one)
    return lines


def drawn_by(window: Window, timeline: Timeline) -> Drawn:
    runs, rectangles = window.rectangles.runs, defaultdict(list)
    places = tracks(timeline)
    columns = (window.rectangles.lane, runs.group, runs.start, runs.end, runs.covered, runs.size)
    names = [window.names[code] for code in window.rectangles.name]
    for lane, line, *numbers, name, longest in zip(
        *(c.tolist() for c in columns), names, runs.longest.tolist()
    ):
        if lane in places:
            start, end, covered, size = numbers
            rectangles[places[lane], line].append(Rectangle(start, end, covered, size, name, longest))
    return rectangles


def check_window(
    timeline: Timeline, lines: dict[tuple[Place, int], list[Slice]], start: int, end: int, width: int
) -> None:
    window = timeline.window(start, end, width, tracks(timeline))
    assert (window.start, window.end) == aligned(start, end, window.shift)
    expected = {key: rectangles(line, window.start, window.end, window.shift) for key, line in lines.items()}
    assert drawn_by(window, timeline) == {key: drawn for key, drawn in expected.items() if drawn}


@pytest.fixture(scope="module")
def breaks(recording: Recording) -> Path:
    (path,) = recording("breaks").glob("*.pt.trace.json")
    return path


@pytest.mark.parametrize("windows", [100, pytest.param(500, marks=pytest.mark.large)])
def test_windows_of_a_recording_are_what_the_events_give(
    breaks: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    monkeypatch.setattr(lane_rows, "_MIN_SLICES_FOR_LEVELS", 0)
    monkeypatch.setattr(detail, "_FINEST", 9)
    timeline = timeline_of(breaks)
    lines = lines_of(timeline, breaks)
    assert sum(map(len, lines.values())) == 6401
    draw = random.Random(7)
    for _ in range(windows):
        length = int(10 ** draw.uniform(0, np.log10(timeline.duration * 1.5)))
        start = draw.randint(-length // 2, timeline.duration)
        check_window(timeline, lines, start, start + max(1, length), draw.choice([1, 50, 700, 3000]))


def test_without_stored_levels_the_windows_are_the_same(
    breaks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = timeline_of(breaks)
    monkeypatch.setattr(lane_rows, "_MIN_SLICES_FOR_LEVELS", 0)
    stored = timeline_of(breaks)
    lanes = range(len(plain.lanes))
    for width in (1, 30, 500, 5000):
        one, other = (each.window(0, each.duration, width, lanes) for each in (plain, stored))
        assert one.names == other.names
        for column, same in zip(one.rectangles.runs, other.rectangles.runs):
            assert column.tolist() == same.tolist()


_TIMES = st.tuples(st.integers(0, 3000), st.integers(0, 900), st.integers(0, 1))


@example(
    [(0, 2, 0), (1, 0, 0), (1, 2, 0), (1, 2, 0), (1, 2, 0)], 0, 1, 1
)  # one crosses inside of one that crosses
@given(
    st.lists(_TIMES, min_size=1, max_size=40), st.integers(0, 3000), st.integers(1, 4000), st.integers(1, 60)
)
def test_any_slices_are_drawn_as_defined(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[tuple[int, int, int]],
    start: int,
    length: int,
    width: int,
) -> None:
    """Also those that cross, coincide, or take no time."""
    events = [
        slice_(f"s{number % 7}", ts / 1000, dur / 1000, tid=tid)
        for number, (ts, dur, tid) in enumerate(times)
    ]
    path = write_trace(tmp_path_factory.mktemp("any"), events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_rows, "_MIN_SLICES_FOR_LEVELS", 0)
        patch.setattr(detail, "_FINEST", 1)
        timeline = timeline_of(path)
        lines = lines_of(timeline, path)
        for line in lines.values():
            assert all(one.end <= other.start for one, other in pairwise(line))
        if start + length >= timeline.extent[0] and start <= timeline.extent[1]:
            check_window(timeline, lines, start, start + length, width)


def test_zoomed_in_every_slice_is_there_by_itself(breaks: Path) -> None:
    timeline = timeline_of(breaks)
    trace, drawn = timeline.rows.trace, Counter[tuple[Any, ...]]()
    for lane, place in tracks(timeline).items():
        runs = timeline.slices[lane].runs(*timeline.extent, 0)
        names = timeline.slices[lane].name_codes(runs.row)
        for name, start, end in zip(names, runs.start, runs.end):
            drawn[place, trace.names[name], int(start), int(end)] += 1
    expected = Counter(
        (place, one.name, one.start - timeline.origin, one.end - timeline.origin)
        for place, slices in slices_of(breaks).items()
        for one in slices
    )
    assert drawn == expected


def test_a_slice_is_found_where_a_window_shows_it(breaks: Path) -> None:
    timeline = timeline_of(breaks)
    trace = timeline.rows.trace
    for row in random.Random(3).sample(range(len(trace)), 60):
        start = int(trace.ts[row]) - timeline.origin
        if start + int(trace.dur[row]) < 0:
            continue
        lane = timeline.lane_of_track[int(trace.track[row])]
        window = timeline.window(start, start + 1, 1, [lane])
        assert row in window.rectangles.runs.row


class TestLanes:
    def test_each_step_of_the_recording_has_five_nested_regions_and_four_breaks(
        self, recording: Recording
    ) -> None:
        timeline = session_timeline(recording("breaks"))
        regions, marked = items_of(timeline, "regions"), items_of(timeline, "breaks")
        costs = []
        for one in timeline.describe().steps:
            inside = [item for item in marked.items if one.start_ns <= item.start < one.end_ns]
            assert [item.facts["line"] for item in inside] == [26, 27, 28, 29]
            costs.append(sum(item.dur for item in inside))
            forward = [
                (item.compile_id, int(line))
                for item, line in zip(regions.items, regions.line)
                if one.start_ns <= item.start < one.end_ns and item.color == "region"
            ]
            assert forward == [("0/0", 0), ("1/0", 1), ("2/0", 2), ("3/0", 3), ("4/0", 4)]
        assert costs == [636_703, 523_926, 505_275]

    def test_both_ranks_of_a_distributed_run_have_their_spans(self, recording: Recording) -> None:
        for number, opened in enumerate(spans_in(recording("ddp"))):
            assert Path(opened.trace.path).name.startswith(f"rank{number}.")
            layout = opened.of(Timeline).describe()
            assert [step.name for step in layout.steps] == [f"ProfilerStep#{number}" for number in (2, 3, 4)]
            kinds = {lane.kind for lane in layout.lanes}
            assert {"steps", "regions", "phases", "thread", "stream"} <= kinds
            assert any(name.startswith("ncclDevKernel") for name in opened.trace.names)

    def test_a_profiled_compilation_shows_its_phases_and_autotuning(self, recording: Recording) -> None:
        timeline = session_timeline(recording("resnet18_compile"))
        items = items_of(timeline, "phases").items
        inside = [item for item in items if 0 <= item.start < timeline.duration]
        took: Counter[str] = Counter()
        for item in inside:
            took[item.color] += item.dur
        phases = {
            f"phase_{name}" for name in ("dynamo", "aot_autograd", "inductor", "triton", "autotune", "cache")
        }
        assert phases <= set(took)
        assert took["phase_autotune"] > 10**8
        # Every one is a rectangle of its own where the view is close enough.
        window = timeline.window(0, timeline.duration, 16384, [lane_of(timeline, "phases")])
        assert int(window.rectangles.runs.size.sum()) == len(inside)

    def test_what_was_compiled_before_the_trace_has_negative_times(self, recording: Recording) -> None:
        timeline = session_timeline(recording("breaks"))
        phases = items_of(timeline, "phases").items
        assert len(phases) == 367
        assert all(item.start + item.dur < 0 for item in phases)
        assert timeline.extent[0] == phases[0].start
        window = timeline.window(timeline.extent[0], 0, 800, [lane_of(timeline, "phases")])
        assert int(window.rectangles.runs.size.sum()) == 367

    def test_it_opens_on_the_first_step_with_the_gpu_work_that_it_launched(self, tmp_path: Path) -> None:
        events = [
            slice_("before", 0, 5),
            step(4, 10, 20),
            *launch("late", 25, 40, 7),
            *launch("later", 31, 60, 7),
        ]
        timeline = timeline_of(write_trace(tmp_path, events))
        assert timeline.describe().home == [10_000, 47_000]

    def test_each_gpu_has_the_steps_by_its_own_clock(self, tmp_path: Path) -> None:
        """Above its streams: from the first work that a step launched there to that of the next."""
        events = [step(at, 10 * at, 10) for at in (0, 1)]
        for at in (0, 1):
            events += launch("k", 10 * at + 1, 5 + 50 * at, 40)
            events += launch("k", 10 * at + 2, 20 + 30 * at, 30, device=2)
        timeline = timeline_of(write_trace(tmp_path, events))
        lanes = [(lane.group, lane.kind, lane.title) for lane in timeline.lanes if lane.kind != "counter"]
        assert lanes[:6] == [
            ("", "steps", "Steps"),
            ("GPU 0", "steps", "Steps on GPU 0"),
            ("GPU 0", "gaps", "Idle"),
            ("GPU 0", "stream", "thread 7"),
            ("GPU 2", "steps", "Steps on GPU 2"),
            ("GPU 2", "stream", "thread 7"),
        ]
        for device, times in (("0", [(5, 50), (55, 40)]), ("2", [(20, 30), (50, 30)])):
            drawn = items_of(timeline, "steps", f"on GPU {device}").items
            assert [(item.start / 1000, item.dur / 1000) for item in drawn] == times
            assert [item.name for item in drawn] == ["ProfilerStep#0", "ProfilerStep#1"]
            assert [item.facts for item in drawn] == [{"host_us": 10}] * 2

    def test_a_gap_is_a_slice_named_after_what_took_it(self, tmp_path: Path) -> None:
        events = [frame("loss.item", 20, 60), *launch("a", 0, 5, 5), *launch("b", 85, 90, 5)]
        (gap,) = items_of(timeline_of(write_trace(tmp_path, events)), "gaps", "Idle").items
        assert (gap.name, gap.start, gap.dur, gap.color) == ("loss.item", 10_000, 80_000, "gap_python")
        assert sum(gap.facts.values()) == 80, "all of it has a cause"

    def test_threads_stand_by_what_they_launch_and_others_are_folded(self, tmp_path: Path) -> None:
        events = [step(0, 0, 100), slice_("idle", 0, 9, tid=900)]
        events += [event for at in range(3) for event in launch("k", 10 * at + 1, 10 * at + 5, 4, 902)]
        events += launch("k", 60, 70, 4)
        lanes = [lane for lane in timeline_of(write_trace(tmp_path, events)).lanes if lane.kind == "thread"]
        assert [lane.title for lane in lanes][1:] == ["thread 902", "thread 900"]
        assert [lane.folded for lane in lanes] == [False, False, True]

    def test_without_steps_it_opens_on_everything(self, tmp_path: Path) -> None:
        timeline = timeline_of(write_trace(tmp_path, [slice_("a", 3, 5), slice_("b", 10, 5)]))
        assert timeline.describe().home == [0, 12_000]

    def test_a_trace_without_slices_has_no_lanes(self, tmp_path: Path) -> None:
        layout = timeline_of(write_trace(tmp_path, [])).describe()
        assert (layout.lanes, layout.duration_ns, layout.home) == ([], 0, [0, 0])

    def test_lanes_that_are_missing_are_explained(self, tmp_path: Path, recording: Recording) -> None:
        assert session_timeline(recording("breaks")).describe().notes == []
        (note,) = timeline_of(write_trace(tmp_path, [slice_("a", 3, 5)])).describe().notes
        assert "No compile summary or log" in note
        compiled = data_of(CompileSummary())
        old = profile_with(tmp_path, [slice_("a", 3, 5)], compiled, baseTimeNanoseconds=0)
        layout = old.of(Timeline).describe()
        assert "clock is not Unix time" in layout.notes[0]

    def test_colours_are_categories_then_kinds(self, tmp_path: Path) -> None:
        assert COLORS[: len(CATEGORIES)] == CATEGORIES
        operators = ["aten::mm", "aten::view", "aten::add_", "Torch-Compiled Region: 0/0", "Mine"]
        events = [slice_(name, 20 * place, 5) for place, name in enumerate(operators)]
        events += [kernel("triton_poi_fused_add_0", 1, 2), *launch("mine", 105, 106, 2)]
        timeline = timeline_of(write_trace(tmp_path, events))
        window = timeline.window(0, 110_000, 1000, range(len(timeline.lanes)))
        rows = zip(window.rectangles.name, window.rectangles.color)
        names = {window.names[name]: COLORS[color] for name, color in rows}
        assert names == {
            "aten::mm": "gemm",
            "aten::view": "cpu_op",
            "aten::add_": "aten",
            "Torch-Compiled Region: 0/0": "region",
            "0/0": "region",
            "idle": "gap_unaccounted",
            "Mine": "cpu_op",
            "cuLaunchKernelEx": "runtime",
            "mine": "triton_user",
            "triton_poi_fused_add_0": "triton_pointwise",
        }


class TestCounters:
    def test_gpu_busy_is_the_share_of_each_bucket(self, tmp_path: Path) -> None:
        events = [slice_("host", 0, 8.192), kernel("a", 1.024, 1.024), kernel("b", 1.536, 0.768)]
        timeline = timeline_of(write_trace(tmp_path, events))
        lane = lane_of(timeline, "counter")
        points = timeline.window(0, 8192, 8, [lane]).counters[lane]
        shares = dict(zip(points.start.tolist(), points.last.tolist()))
        assert shares == {0: 0.0, 1024: 100.0, 2048: 25.0, 3072: 0.0}

    def test_memory_keeps_every_peak(self, tmp_path: Path) -> None:
        draw = random.Random(5)
        values = [(ts, draw.randint(0, 10**9)) for ts in sorted(draw.sample(range(1, 10_000), 300))]
        events = [slice_("host", 0, 10)] + [memory_event(ts / 1000, 1, value) for ts, value in values]
        timeline = timeline_of(write_trace(tmp_path, events))
        lane = lane_of(timeline, "counter", "allocated")
        for start, end, width in [(0, 10_000, 20), (2000, 9000, 3), (5000, 5100, 100), (0, 10_000, 10_000)]:
            window = timeline.window(start, end, width, [lane])
            held = [value for ts, value in values if ts < window.start][-1:]
            buckets: dict[int, list[int]] = {window.start: held} if held else {}
            for ts, value in values:
                if window.start <= ts < window.end:
                    buckets.setdefault(ts >> window.shift << window.shift, []).append(value)
            points = window.counters[lane]
            assert [tuple(map(int, row)) for row in zip(*points)] == [
                (at, max(inside), inside[-1]) for at, inside in buckets.items()
            ]


class TestLimits:
    def test_a_stray_event_decades_away_costs_nothing(self, tmp_path: Path) -> None:
        events = [slice_("stray", 0, 1), *(slice_("s", 1.7e15 + at, 1) for at in range(50))]
        timeline = timeline_of(write_trace(tmp_path, events, baseTimeNanoseconds=0))
        window = timeline.window(*timeline.extent, 1000, [0])
        assert window.rectangles.runs.size.tolist() == [1, 50]

    def test_a_crowded_window_gets_longer_buckets(self, tmp_path: Path) -> None:
        events = [slice_("s", 0.004 * at, 0.002, tid=tid) for at in range(6000) for tid in range(100, 104)]
        timeline = timeline_of(write_trace(tmp_path, events))
        window = timeline.window(0, timeline.duration, 16384, range(4))
        assert len(window.rectangles.lane) <= MAX_RECTANGLES
        assert int(window.rectangles.runs.size.sum()) == 24_000

    def test_a_window_outside_of_everything_is_refused(self, tmp_path: Path) -> None:
        timeline = timeline_of(write_trace(tmp_path, [slice_("a", 3, 5)]))
        for start, end in [(-20, -10), (5001, 6000)]:
            with pytest.raises(BadRequest, match=r"outside 0 … 5000"):
                timeline.window(start, end, 100, [0])
        with pytest.raises(BadRequest, match="no lane -1"):
            timeline.window(0, 5, 10, [-1])

    def test_shift_is_the_finest_that_is_no_shorter_than_a_pixel(self) -> None:
        for length, width in [(1, 1), (1000, 1000), (1001, 1000), (2000, 1000), (10**12, 1), (7, 16384)]:
            shift = shift_for(length, width)
            assert 1 << shift >= length / width
            assert shift == 0 or 1 << (shift - 1) < length / width
