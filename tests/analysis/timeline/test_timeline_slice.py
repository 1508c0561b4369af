"""What the timeline tells of one slice, of all that a name hits, and of a stretch of time."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_timeline import lane_of, session_timeline, timeline_of

from recordings import Recording
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.timeline.lanes import ItemSlices
from tb_torchcompile_plugin.analysis.timeline.range import host_inside, timeline_range
from tb_torchcompile_plugin.analysis.timeline.slice import TimelineSlice, timeline_search, timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Fact, Timeline
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.profile.columns import us
from timeline_reference import Slice, ns, slices_of
from traces import MAIN, PID, frame, kernel, launch, slice_, write_trace

GPU_CATS = ("kernel", "gpu_memcpy", "gpu_memset")


def slice_of(timeline: Timeline, name: str) -> TimelineSlice:
    """The first slice of that name."""
    hits = timeline_search(timeline, name, None, [], 0, 0, 1).hits
    return timeline_slice(timeline, hits[0].lane, hits[0].row)


def values(facts: list[Fact]) -> dict[str, str | None]:
    return {fact.label: fact.value for fact in facts}


@pytest.fixture(scope="module")
def breaks(recording: Recording) -> Timeline:
    return session_timeline(recording("breaks"))


class TestSlice:
    def test_a_launch_and_its_kernel_know_each_other(self, tmp_path: Path) -> None:
        events = [slice_("aten::mm", 0, 10), *launch("gemm", 3, 20, 5, grid=[1, 2, 3])]
        timeline = timeline_of(write_trace(tmp_path, events))
        gpu = slice_of(timeline, "gemm")
        call = slice_of(timeline, "cuLaunchKernelEx")
        assert gpu.launch is not None
        assert (gpu.launch.lane, gpu.launch.row, gpu.launch.start_ns) == (call.lane, call.row, 3000)
        assert [(one.row, one.start_ns, one.dur_ns) for one in call.kernels] == [(gpu.row, 20_000, 5000)]
        assert (gpu.kernel, call.kernel) == ("gemm", "gemm")
        assert values(gpu.arguments)["grid"] == "[1,2,3]"
        assert call.parent == slice_of(timeline, "aten::mm").row

    def test_forward_and_backward_know_each_other(self, tmp_path: Path) -> None:
        arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 7, "pid": PID}
        events = [
            numbered(slice_("aten::add", 1, 4), 3),
            numbered(slice_("AddBackward0", 20, 4, tid=101), 3),
            {"ph": "s", "ts": 1, "tid": MAIN, **arrow},
            {"ph": "f", "ts": 20, "tid": 101, "bp": "e", **arrow},
        ]
        timeline = timeline_of(write_trace(tmp_path, events))
        forward, backward = slice_of(timeline, "aten::add"), slice_of(timeline, "AddBackward0")
        assert [one.row for one in forward.backward] == [backward.row]
        assert backward.forward is not None
        assert backward.forward.row == forward.row
        assert (forward.forward, backward.backward) == (None, [])

    def test_the_users_line_is_the_innermost_that_is_not_torchs(self, tmp_path: Path) -> None:
        frames = [
            "train.py(3): <module>",
            "home/user/model.py(17): forward",
            "torch/nn/modules/module.py(9): _call",
            "/tmp/torchinductor_me/vd/cvdocykifmynkmmmuw7rgu22g4zgqu7kh3lmlzoghvd5acdygpmo.py(211): call",
        ]
        events = [frame(name, at, 20 - 2 * at) for at, name in enumerate(frames)]
        events += [frame("contextlib.py(4): inner", 4, 9), *launch("k", 5, 9, 1)]
        line = slice_of(timeline_of(write_trace(tmp_path, events)), "k").user_line
        assert line is not None
        assert (line.file, line.line, line.function) == ("home/user/model.py", 17, "forward")

    def test_self_time_and_crossing(self, tmp_path: Path) -> None:
        slices = {"outer": (0, 10), "inner": (2, 3), "crosses": (8, 6), "next": (12, 1)}
        events = [slice_(name, *times) for name, times in slices.items()]
        timeline = timeline_of(write_trace(tmp_path, events))
        assert values(slice_of(timeline, "outer").facts)["Self"] == "5.00 µs"
        crossing, after = slice_of(timeline, "crosses"), slice_of(timeline, "next")
        assert ("Crosses" in values(crossing.facts), crossing.depth, crossing.dur_ns) == (True, 2, 6000)
        assert ("Crosses" in values(after.facts), after.depth) == (False, 0)

    def test_every_kernel_of_a_recording_has_the_launch_of_the_file(self, breaks: Timeline) -> None:
        trace = breaks.rows.trace
        for row in random.Random(1).sample(trace.select(cat="kernel").tolist(), 20):
            answer = timeline_slice(breaks, breaks.lane_of_track[int(trace.track[row])], row)
            assert answer.launch is not None
            launch = timeline_slice(breaks, answer.launch.lane, answer.launch.row)
            assert values(launch.arguments)["correlation"] == values(answer.arguments)["correlation"]
            assert row in [kernel.row for kernel in launch.kernels]
            assert answer.compile_id is None or answer.compile_id.endswith("/0")

    @pytest.mark.parametrize("name", ["resnet18_eager", "breaks"])
    def test_both_ends_of_every_arrow_of_a_recording_know_each_other(
        self, recording: Recording, name: str
    ) -> None:
        (path,) = recording(name).glob("*.pt.trace.json")
        timeline = timeline_of(path)
        ends: dict[int, dict[str, tuple[Any, int]]] = defaultdict(dict)
        for event in json.loads(path.read_text())["traceEvents"]:
            if event.get("cat") == "fwdbwd":
                ends[event["id"]][event["ph"]] = event["tid"], ns(event["ts"]) - timeline.origin
        arrows = [(arrow["s"], arrow["f"]) for arrow in ends.values()]
        assert len(arrows) > 10
        for tail, head in arrows[:200]:
            forward, backward = slice_at(timeline, *tail), slice_at(timeline, *head)
            assert head[1] in [one.start_ns for one in forward.backward]
            assert backward.forward is not None
            assert backward.forward.row == forward.row
            assert backward.row in [one.row for one in forward.backward]

    def test_an_item_tells_its_facts_and_its_slice_in_the_trace(self, breaks: Timeline) -> None:
        lane = lane_of(breaks, "breaks")
        items = breaks.slices[lane]
        assert isinstance(items, ItemSlices)
        answer = timeline_slice(breaks, lane, 0)
        facts = values(answer.arguments)
        assert (answer.compile_id, facts["line"], facts["host_us"]) == ("0/0", "26", "189.513")
        assert answer.slice is not None
        assert answer.slice.name == "Torch-Compiled Region: 1/0"
        nested = timeline_slice(breaks, lane_of(breaks, "regions"), 1)
        assert (nested.compile_id, nested.depth, nested.parent) == ("1/0", 1, 0)

    def test_args_of_a_file_that_is_gone_are_a_problem_and_no_failure(self, tmp_path: Path) -> None:
        path = write_trace(tmp_path, [slice_("a", 0, 1)])
        timeline = timeline_of(path)
        path.unlink()
        answer = slice_of(timeline, "a")
        assert answer.arguments == []
        assert "cannot be opened" in answer.args_problem

    @pytest.mark.parametrize(("lane", "row"), [(2, 99), (0, 0), (9, 0)])
    def test_what_is_not_there_is_refused(self, tmp_path: Path, lane: int, row: int) -> None:
        """Rows: the host's slice is 1, the kernel's 0; lanes: GPU busy, stream, host."""
        timeline = timeline_of(write_trace(tmp_path, [slice_("host", 0, 9), kernel("k", 1, 2)]))
        assert [timeline_slice(timeline, *there).row for there in ((2, 1), (1, 0))] == [1, 0]
        with pytest.raises(BadRequest):
            timeline_slice(timeline, lane, row)


class TestSearch:
    def test_every_hit_of_a_recording_is_counted(self, breaks: Timeline) -> None:
        trace = breaks.rows.trace
        for query in ("aten::mm", "TRITON", "torch-compiled", "x"):
            wanted = query.lower()
            count = sum(wanted in trace.names[code].lower() for code in trace.name.tolist())
            for lane, slices in breaks.slices.items():
                if isinstance(slices, ItemSlices) and breaks.lanes[lane].kind != "gaps":
                    count += sum(wanted in item.name.lower() for item in slices.items)
            answer = timeline_search(breaks, query, None, [], 0, 0, 1000)
            assert answer.count == count
            assert len(answer.hits) == min(count, 1000)
            assert [hit.start_ns for hit in answer.hits] == sorted(hit.start_ns for hit in answer.hits)
            assert all(wanted in hit.name.lower() for hit in answer.hits)

    def test_the_first_behind_a_time_and_every_one_after_it(self, tmp_path: Path) -> None:
        """Also those that begin at the same ns: each has a number of its own."""
        events = [slice_(f"hit{at}", at, 1) for at in (10, 20, 30)] + [slice_("other", 0, 5)]
        events += [slice_("hit20 too", 20, 3, tid=101), slice_("hit20 inside", 20, 0.5)]
        timeline = timeline_of(write_trace(tmp_path, events))

        def position(at: int) -> int:
            return timeline_search(timeline, "hit", None, [], at, 0, 0).position

        assert [position(at) for at in (0, 20_000, 20_001, 90_000)] == [0, 1, 4, 5]
        pages = [timeline_search(timeline, "hit", None, [], 0, number, 1) for number in range(6)]
        names = [hit.name for page in pages for hit in page.hits]
        assert names == ["hit10", "hit20", "hit20 inside", "hit20 too", "hit30"] and not pages[-1].hits
        assert {page.count for page in pages} == {5}

    def test_a_compile_id_finds_what_belongs_to_it(self, breaks: Timeline) -> None:
        answer = timeline_search(breaks, "1/0", None, [], 0, 0, 1000)
        kinds = {breaks.lanes[hit.lane].kind for hit in answer.hits}
        assert kinds == {"regions", "breaks", "phases", "thread"}
        lane = lane_of(breaks, "phases")
        items = breaks.slices[lane]
        assert isinstance(items, ItemSlices)
        mine = [item for item in items.items if item.compile_id == "1/0"]
        assert len([hit for hit in answer.hits if hit.lane == lane]) == len(mine) > 10
        assert answer.hits[0].start_ns == mine[0].start

    def test_windows_lanes_and_pages(self, tmp_path: Path) -> None:
        events = [slice_("hit", at, 2, tid=100 + at % 2) for at in range(0, 40, 5)]
        timeline = timeline_of(write_trace(tmp_path, events))
        search = timeline_search(timeline, "hit", None, [], 0, 3, 2)
        assert (search.count, search.offset) == (8, 3)
        assert [hit.start_ns for hit in search.hits] == [15_000, 20_000]
        assert timeline_search(timeline, "hit", (6_000, 11_000), [], 0, 0, 9).count == 2
        assert timeline_search(timeline, "hit", None, [0], 0, 0, 9).count == 4
        assert timeline_search(timeline, "", None, [], 0, 0, 9).count == 0
        with pytest.raises(BadRequest):
            timeline_search(timeline, "hit", None, [7], 0, 0, 9)


class TestRange:
    def test_slices_count_with_their_part_inside(self, tmp_path: Path) -> None:
        host = [slice_("outer", 0, 100), slice_("inner", 20, 30)]
        events = [*host, kernel("k", 10, 30), kernel("other", 60, 5)]
        answer = timeline_range(timeline_of(write_trace(tmp_path, events)), (30_000, 62_000))
        facts = values(answer.facts)
        assert facts["GPU 0 busy"] == "37.5 % (12.0 µs), 2 kernels"
        assert facts[f"thread {MAIN}"] == "100 % (32.0 µs)"
        kernels, ops = ([(row.name, row.text) for row in group.rows] for group in answer.longest)
        assert kernels == [("k", "10.0 µs, ×1"), ("other", "2.00 µs, ×1")]
        assert ops == [("inner", "20.0 µs, ×1"), ("outer", "12.0 µs, ×1")]

    def test_ranges_of_a_recording_are_what_the_file_gives(
        self, breaks: Timeline, recording: Recording
    ) -> None:
        (path,) = recording("breaks").glob("*.pt.trace.json")
        slices = [*chain(*slices_of(path).values())]
        draw = random.Random(2)
        for _ in range(25):
            start = draw.randint(0, breaks.duration - 1)
            end = draw.randint(start + 1, breaks.duration)
            answer = timeline_range(breaks, (start, end))
            own, launches, busy = by_hand(slices, breaks.origin + start, breaks.origin + end)
            number = sum(count for count, _ in launches.values())
            share = percent(100 * busy / (end - start))
            gpu = f"{share} ({duration(us(busy))}), {plural(number, 'kernel')}"
            assert answer.facts[1].value == gpu
            groups = {group.kernels: group for group in answer.longest}
            assert f"by self time of {duration(us(sum(own.values())))}:" in groups[False].title
            longest = sorted(own.values(), reverse=True)[:8]
            assert [row.text.split(",")[0] for row in groups[False].rows] == [
                duration(us(ns)) for ns in longest
            ]
            if launches:
                in_order = sorted(launches.values(), key=lambda row: -row[1])[:8]
                texts = [f"{duration(us(ns))}, ×{count:,}" for count, ns in in_order]
                assert [row.text for row in groups[True].rows] == texts

    def test_the_parts_of_a_trace_sum_to_the_whole(self, breaks: Timeline) -> None:
        cuts = [0, 1_234_567, 5_000_000, 11_111_111, breaks.duration]
        parts = sum(int(host_inside(breaks, *part)[1].sum()) for part in pairwise(cuts))
        assert parts == int(host_inside(breaks, 0, breaks.duration)[1].sum())


def numbered(event: dict[str, Any], sequence: int) -> dict[str, Any]:
    return event | {"args": {"Sequence number": sequence}}


def slice_at(timeline: Timeline, tid: Any, start: int) -> TimelineSlice:
    """The outermost op of a thread that starts there."""
    trace = timeline.rows.trace
    rows = [
        row
        for row in (trace.ts == start + timeline.origin).nonzero()[0].tolist()
        if trace.tracks[trace.track[row]].tid == tid and trace.cats[trace.cat[row]] == "cpu_op"
    ]
    numbered = [row for row in rows if trace.sequence[row] >= 0]
    return timeline_slice(timeline, -1, (numbered or rows)[0])


Named = dict[tuple[str, str], int]
OFF_HOST = (*GPU_CATS, "gpu_user_annotation", "Trace", "overhead")


def by_hand(slices: Iterable[Slice], start: int, end: int) -> tuple[Named, dict[str, list[int]], int]:
    """Self time by (name, cat), [launches, time] of kernels by name, and GPU busy time: plain loops."""
    own: Named = defaultdict(int)
    launches: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    gpu: list[tuple[int, int]] = []
    for one in slices:
        begin = max(one.start, start)
        if one.cat in GPU_CATS and one.start < end and (one.end > start or one.start >= start):
            stop = min(one.end, end)
            launches[one.name][0] += 1
            launches[one.name][1] += max(0, stop - begin)
            gpu.append((begin, stop))
        elif one.cat not in OFF_HOST:
            inside = max(0, min(one.clipped, end) - begin)
            own[one.name, one.cat] += inside
            if one.parent:
                own[one.parent.name, one.parent.cat] -= inside
    busy = reach = 0
    for begin, stop in sorted(gpu):
        busy += max(0, stop - max(begin, reach))
        reach = max(reach, stop)
    return own, launches, busy


def test_a_launch_knows_its_place_among_those_of_its_kernel(tmp_path: Path) -> None:
    """It began 30 µs after the one before it ended; behind another kernel nothing waited."""
    launches = ("k", 0, 10), ("k", 20, 50), ("other", 21, 70), ("k", 22, 80)
    events = [event for name, at, start in launches for event in launch(name, at, start, 10)]
    timeline = timeline_of(write_trace(tmp_path, events))
    trace = timeline.rows.trace
    rows = np.flatnonzero([trace.names[name] == "k" for name in trace.name])
    rows = rows[np.argsort(trace.ts[rows])]
    first, second, third = (timeline_slice(timeline, -1, int(row)) for row in rows)
    assert (first.number, first.of, first.previous) == (1, 3, None)
    assert values(first.facts)["Idle before"] is None
    assert second.previous is not None and second.following is not None
    assert (second.number, second.previous.row, second.following.row) == (2, rows[0], rows[2])
    facts = values(second.facts)
    assert (facts["Idle before"], facts["Queue time"]) == ("30.0 µs", "30.0 µs")
    assert (values(third.facts)["Idle before"], third.following) == ("0 µs", None)
