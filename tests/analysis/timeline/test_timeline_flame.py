"""The flame graph of a stretch of the timeline: exact sums, clipped slices, merged stacks, what is folded."""

import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_timeline import session_timeline, timeline_of

from profiles import key_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.timeline import flame
from tb_torchcompile_plugin.analysis.timeline.flame import FlameFrame, FlameThread, timeline_flame
from tb_torchcompile_plugin.analysis.timeline.lanes import ItemSlices, TrackSlices
from tb_torchcompile_plugin.analysis.timeline.range import host_inside, host_tracks
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.errors import BadRequest
from tb_torchcompile_plugin.profile.host.thread_activity import ThreadActivity
from tb_torchcompile_plugin.reader.memo import answers_of
from traces import kernel, slice_, write_trace

EVENTS = [
    slice_("outer", 0, 100),
    slice_("add", 10, 20),
    slice_("copy", 12, 4),
    slice_("add", 40, 30),
    slice_("copy", 41, 9),
    slice_("mul", 80, 5),
    slice_("elsewhere", 0, 50, tid=101),
    kernel("k", 10, 30),
]


@pytest.fixture(scope="module")
def breaks(recording: Recording) -> Timeline:
    return session_timeline(recording("breaks"))


def said_of(thread: FlameThread) -> list[tuple[str, int, int, int, int]]:
    return [(one.name, one.depth, one.start_ns, one.end_ns, one.calls) for one in thread.frames]


def children(thread: FlameThread, frame: FlameFrame) -> list[FlameFrame]:
    below = [one for one in thread.frames if one.depth == frame.depth + 1]
    return [one for one in below if frame.start_ns <= one.start_ns < frame.end_ns]


def test_calls_with_one_stack_are_one_frame_clipped_to_the_stretch(tmp_path: Path) -> None:
    main, other = timeline_flame(timeline_of(write_trace(tmp_path, EVENTS)), (20_000, 82_000), -1, -1).threads
    assert said_of(main) == [
        ("outer", 0, 0, 62_000, 1),
        ("add", 1, 0, 40_000, 2),  # 10 of the first one's 20 µs, all 30 of the second one's
        ("mul", 1, 40_000, 42_000, 1),
        ("copy", 2, 0, 9000, 1),  # the first one is over before
    ]
    assert main.time_ns == 62_000
    assert said_of(other) == [("elsewhere", 0, 0, 30_000, 1)]
    assert main.frames[1].description == "40.0 µs, 64.5 % of the range, in 2 calls"


def test_a_frame_leads_to_its_longest_call(tmp_path: Path) -> None:
    timeline = timeline_of(write_trace(tmp_path, EVENTS))
    main = timeline_flame(timeline, (0, 100_000), -1, -1).threads[0]
    row = main.frames[1].row
    assert row is not None
    assert timeline_slice(timeline, main.lane, row).dur_ns == 30_000


def test_of_a_slice_of_a_thread_it_is_what_ran_inside_of_it(tmp_path: Path) -> None:
    timeline = timeline_of(write_trace(tmp_path, EVENTS))
    main = timeline_flame(timeline, (0, 100_000), -1, -1).threads[0]
    row = main.frames[1].row
    assert row is not None
    (alone,) = timeline_flame(timeline, (40_000, 70_000), main.lane, row).threads
    assert said_of(alone) == [("add", 0, 0, 30_000, 1), ("copy", 1, 0, 9000, 1)]
    stream = next(lane.id for lane in timeline.lanes if lane.kind == "stream")
    assert (
        len(timeline_flame(timeline, (10_000, 40_000), stream, row).threads) == 2
    )  # what the host did meanwhile


def test_nothing_ran(tmp_path: Path) -> None:
    events = [slice_("first", 0, 10), slice_("last", 90, 10)]
    timeline = timeline_of(write_trace(tmp_path, events))
    answer = timeline_flame(timeline, (20_000, 60_000), -1, -1)
    assert (answer.threads, answer.note) == ([], "Nothing was recorded on any thread in these 40.0 µs.")
    with pytest.raises(BadRequest):
        timeline_flame(timeline, (60_000, 20_000), -1, -1)


def test_what_is_short_is_folded_with_its_sum(tmp_path: Path) -> None:
    short = [slice_(f"op {i}", 10 + i, 0.5 + i / 100) for i in range(20)]
    timeline = timeline_of(
        write_trace(tmp_path, [slice_("outer", 0, 9000), slice_("long", 100, 5000), *short])
    )
    (thread,) = timeline_flame(timeline, (0, 9_000_000), -1, -1).threads
    others = 20 * 500 + sum(range(20)) * 10
    assert said_of(thread)[1:] == [
        ("long", 1, 0, 5_000_000, 1),
        ("20 others", 1, 5_000_000, 5_000_000 + others, 20),
    ]
    assert thread.frames[-1].row is None


def test_the_answer_is_bounded_and_its_sums_are_those_of_all_frames(
    breaks: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flame, "MAX_FRAMES", 40)
    answer = timeline_flame(breaks, (0, breaks.duration), -1, -1)
    frames = [frame for thread in answer.threads for frame in thread.frames]
    assert sum(frame.row is not None for frame in frames) == 40
    assert len(frames) <= 2 * 40 + len(answer.threads)
    every = host_inside(breaks, (0, breaks.duration), host_tracks(breaks))
    assert sum(thread.time_ns for thread in answer.threads) == int(every.own_ns.sum())


def test_of_any_stretch_of_a_recording_it_is_what_walking_its_slices_gives(breaks: Timeline) -> None:
    draw = random.Random(3)
    for _ in range(12):
        start = draw.randint(0, breaks.duration - 1)
        end = draw.randint(start + 1, breaks.duration)
        for thread in timeline_flame(breaks, (start, end), -1, -1).threads:
            known = by_hand(breaks, thread.lane, start, end)
            assert thread.time_ns == sum(ns for stack, ns in known.items() if len(stack) == 1)
            for frame in thread.frames:
                inside = children(thread, frame)
                assert sum(one.end_ns - one.start_ns for one in inside) <= frame.end_ns - frame.start_ns
                assert all(before.end_ns <= after.start_ns for before, after in pairwise(inside))
            whole = [frame for frame in thread.frames if frame.depth == 0]
            assert whole[0].start_ns == 0 and whole[-1].end_ns == thread.time_ns
            alone = {frame.name: frame.end_ns - frame.start_ns for frame in whole if frame.row is not None}
            assert alone == {name: known[(name,)] for name in alone}


def by_hand(timeline: Timeline, lane: int, start: int, end: int) -> dict[tuple[str, ...], int]:
    """ns inside of each stack, slice by slice."""
    trace, slices = timeline.rows.trace, timeline.slices[lane]
    assert isinstance(slices, TrackSlices)
    first, last = trace.track_bounds[slices.track : slices.track + 2].tolist()
    ends = timeline.rows.clamped_end(np.arange(first, last)) - timeline.origin
    stacks: dict[int, tuple[str, ...]] = {-1: ()}
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for row in range(first, last):
        name = trace.names[trace.name[row]].split(" at 0x")[0]
        name += (
            ">"
            if trace.names[trace.name[row]].endswith(">") and " at 0x" in trace.names[trace.name[row]]
            else ""
        )
        stacks[row] = (*stacks[int(trace.parent[row])], name)
        begin = int(trace.ts[row]) - timeline.origin
        sums[stacks[row]] += max(0, min(int(ends[row - first]), end) - max(begin, start))
    return sums


def test_a_timeline_is_listed_before_it_is_known_what_took_its_gaps(recording: Recording) -> None:
    timeline = session_timeline(recording("breaks"))
    timeline.describe()
    (idle,) = (lane for lane in timeline.lanes if lane.later)
    others = [lane.id for lane in timeline.lanes if not lane.later]
    timeline.window(0, timeline.duration, 1024, others)
    asked = answers_of(timeline.profile)._answers
    slices = timeline.slices[idle.id]
    assert isinstance(slices, ItemSlices) and "items" not in vars(slices)
    assert idle.kind == "gaps" and key_of(ThreadActivity) not in asked
    timeline.window(0, timeline.duration, 1024, [idle.id])
    assert len(slices.items) == idle.slices and key_of(ThreadActivity) in asked
